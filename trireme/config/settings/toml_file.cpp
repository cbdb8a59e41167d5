#include "trireme/config/settings/toml_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include <toml++/toml.h>

#include "trireme/base/error.hpp"

namespace trireme::config {
namespace {

constexpr int kMaxWordsOfAKey = 32;
constexpr int kMaxDepth = 32;  // of lists and inline tables

[[noreturn]] void syntax_error(const std::string& file, int line, int column, std::string_view what) {
  throw ConfigError(
      text("this is not TOML: ", shortened(std::string(what), 200), "\n  --> ", file, ":", line, ", column ", column));
}

Place place_of(const std::string& file, const toml::source_region& region) {
  return {file, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column), ""};
}

/// The index after the string that begins at `i`, in TOML syntax: '...', "...", '''...''', """...""".
std::size_t after_string(std::string_view toml, std::size_t i) {
  const char quote = toml[i];
  const std::string triple(3, quote);
  const bool long_string = toml.substr(i).starts_with(triple);
  for (i += long_string ? 3 : 1; i < toml.size(); ++i) {
    if (toml[i] == '\\' && quote == '"') {
      ++i;
    } else if (long_string && toml.substr(i).starts_with(triple)) {
      for (i += 3; i < toml.size() && toml[i] == quote;) ++i;  // up to two quotes may precede the closing three
      return i;
    } else if (!long_string && (toml[i] == quote || toml[i] == '\n')) {
      return i + 1;
    }
  }
  return toml.size();
}

/// Rejects keys with very many parts and very deep lists, for which the recursion in the library would overflow the
/// stack.
void check_depth(const std::string& file, std::string_view toml) {
  int words = 1, line = 1, depth = 0;
  for (std::size_t i = 0; i < toml.size();) {
    const char c = toml[i];
    std::size_t next = i + 1;
    if (c == '#') next = std::min(toml.find('\n', i), toml.size());
    if (c == '"' || c == '\'') next = after_string(toml, i);
    if (std::string_view("\n=,{}[]").find(c) != std::string_view::npos) words = 1;
    depth = std::max(0, depth + (c == '[' || c == '{') - (c == ']' || c == '}'));
    if (depth > kMaxDepth) syntax_error(file, line, 1, text("nested deeper than ", kMaxDepth));
    if (c == '.' && ++words > kMaxWordsOfAKey)
      syntax_error(file, line, 1, text("a key of more than ", kMaxWordsOfAKey, " words"));
    line += static_cast<int>(std::ranges::count(toml.substr(i, next - i), '\n'));
    i = next;
  }
}

class Flattener {
 public:
  explicit Flattener(const std::string& file) : file_(file) {}

  void table(const toml::table& table, const std::string& path) {
    if (table.empty() && !path.empty())
      add_setting(file_, settings_, {path, {Nothing{}}, place_of(file_, table.source())});
    for (const auto& [key, node] : table) {
      const std::string name = path.empty() ? std::string(key.str()) : path + "." + std::string(key.str());
      this->node(node, name, place_of(file_, key.source()));
    }
  }

  /// In file order; the library's tables are sorted alphabetically.
  Settings take() && {
    std::ranges::stable_sort(settings_, {}, [](const Setting& s) { return std::pair(s.place.line, s.place.column); });
    return std::move(settings_);
  }

 private:
  void node(const toml::node& node, const std::string& path, const Place& place) {
    if (const toml::table* inner = node.as_table()) {
      table(*inner, path);
      return;
    }
    const toml::array* array = node.as_array();
    if (array != nullptr && !array->empty() && array->is_homogeneous(toml::node_type::table)) {
      int i = 0;
      for (const toml::node& element : *array) table(*element.as_table(), text(path, ".", i++));
      return;
    }
    add_setting(file_, settings_, {path, value(node, path), place});
  }

  Value value(const toml::node& node, const std::string& path) const {
    if (const auto* v = node.as_string()) return {v->get()};
    if (const auto* v = node.as_integer()) return {v->get()};
    if (const auto* v = node.as_floating_point()) return {v->get()};
    if (const auto* v = node.as_boolean()) return {v->get()};
    if (const auto* v = node.as_array()) {
      Values values;
      for (const toml::node& element : *v) values.push_back(value(element, path));
      return {std::move(values)};
    }
    const Place place = place_of(file_, node.source());
    throw ConfigError(text("the value of ", shortened(path), " is a date, a time or a table among values\n  --> ",
                           str(place), "\n  fix: use text, numbers, true or false, or lists of them"));
  }

  std::string file_;
  Settings settings_;
};

}  // namespace

std::string read_config_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  require<ConfigError>(in.is_open(), "cannot open ", shortened(path, 200), ": ", std::strerror(errno));
  std::string bytes(kMaxConfigBytes + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  require<ConfigError>(!in.bad(), "cannot read ", shortened(path, 200), ": ", std::strerror(errno));
  bytes.resize(static_cast<std::size_t>(in.gcount()));
  require<ConfigError>(bytes.size() <= kMaxConfigBytes, path, " is larger than ", kMaxConfigBytes,
                       " bytes: this is not a config");
  return bytes;
}

Settings parse_toml(const std::string& file, std::string_view toml) {
  require<ConfigError>(toml.size() <= kMaxConfigBytes, file, " is larger than ", kMaxConfigBytes,
                       " bytes: this is not a config");
  check_depth(file, toml);
  try {
    const toml::table root = toml::parse(toml, file);
    Flattener flat(file);
    flat.table(root, "");
    return std::move(flat).take();
  } catch (const toml::parse_error& e) {
    syntax_error(file, static_cast<int>(e.source().begin.line), static_cast<int>(e.source().begin.column),
                 e.description());
  }
}

std::string line_of(std::string_view text, int number) {
  for (; number > 1; --number) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return "";
    text.remove_prefix(end + 1);
  }
  text = text.substr(0, text.find('\n'));
  if (text.ends_with('\r')) text.remove_suffix(1);
  return std::string(text);
}

}  // namespace trireme::config
