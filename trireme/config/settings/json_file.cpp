#include "trireme/config/settings/json_file.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/config/settings/toml_file.hpp"

namespace trireme::config {
namespace {

using nlohmann::json;
constexpr int kMaxJsonDepth = 32;

/// The message of the JSON library without its error code.
std::string what_of(const json::exception& e) {
  const std::string what = e.what();
  const std::size_t end = what.find("] ");
  return shortened(end == std::string::npos ? what : what.substr(end + 2), 200);
}

class JsonFlattener {
 public:
  explicit JsonFlattener(const std::string& file) : file_(file) {}

  void object(const json& object, const std::string& path) {
    if (object.empty() && !path.empty()) add_setting(file_, settings_, {path, {Nothing{}}, place()});
    for (const auto& [key, value] : object.items()) {
      const std::string name = path.empty() ? key : path + "." + key;
      const bool tables =
          value.is_array() && !value.empty() && std::ranges::all_of(value, [](const json& e) { return e.is_object(); });
      if (value.is_object()) {
        this->object(value, name);
      } else if (tables) {
        for (std::size_t i = 0; i < value.size(); ++i) this->object(value[i], text(name, ".", i));
      } else {
        add_setting(file_, settings_, {name, scalar(value, name), place()});
      }
    }
  }
  Settings take() && { return std::move(settings_); }

 private:
  Place place() const { return {file_, 0, 0, ""}; }

  Value scalar(const json& value, const std::string& path) const {
    if (value.is_null()) return {Nothing{}};
    if (value.is_string()) return {value.get<std::string>()};
    if (value.is_boolean()) return {value.get<bool>()};
    if (value.is_number_unsigned())
      require<ConfigError>(value.get<std::uint64_t>() <= INT64_MAX, file_, ": ", shortened(path), " = ", value.dump(),
                           " does not fit 64 bits");
    if (value.is_number_integer()) return {value.get<std::int64_t>()};
    if (value.is_number()) return {value.get<double>()};
    if (value.is_object()) return {value.dump()};  // an object inside a list: kept as text, which no key accepts
    Values values;
    for (const json& element : value) values.push_back(scalar(element, path));
    return {std::move(values)};
  }

  std::string file_;
  Settings settings_;
};

}  // namespace

Settings parse_json(const std::string& file, const std::string& text_of_file) {
  require<ConfigError>(text_of_file.size() <= kMaxConfigBytes, file, " is larger than ", kMaxConfigBytes,
                       " bytes: this is not a config");
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    require<ConfigError>(depth <= kMaxJsonDepth, file, " is nested deeper than ", kMaxJsonDepth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key)
      require<ConfigError>(keys.back().insert(parsed.get<std::string>()).second, file, ": the key ",
                           shortened(parsed.dump()), " is given twice");
    return true;
  };
  json root;
  try {
    root = json::parse(text_of_file, watch);
  } catch (const json::parse_error& e) {
    const auto line =
        1 + std::count(text_of_file.begin(),
                       text_of_file.begin() + static_cast<std::ptrdiff_t>(std::min(e.byte, text_of_file.size())), '\n');
    throw ConfigError(text("this is not JSON: ", what_of(e), "\n  --> ", file, ":", line));
  } catch (const json::exception& e) {  // a number out of range has no position
    throw ConfigError(text("this is not JSON: ", what_of(e), "\n  --> ", file));
  }
  require<ConfigError>(root.is_object(), file, " is not a JSON object");
  JsonFlattener flat(file);
  flat.object(root, "");
  return std::move(flat).take();
}

}  // namespace trireme::config
