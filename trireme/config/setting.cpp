#include "trireme/config/setting.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/config/fields.hpp"

namespace trireme {
namespace {

constexpr std::size_t kMaxSettings = 10'000;

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};

}  // namespace

std::string str(const Place& place) {
  if (place.file.empty()) return place.note;
  return place.line > 0 ? text(place.file, ":", place.line) : place.file;
}

std::string str(const Value& value) {
  return std::visit(Match{
                        [](const Nothing&) { return std::string(); },
                        [](std::string v) { return toml_text(&v); },
                        [](std::int64_t v) { return toml_text(&v); },
                        [](double v) { return toml_text(&v); },
                        [](bool v) { return toml_text(&v); },
                        [](const RawText& v) { return v.text; },
                        [](const Values& v) {
                          std::string out = "[";
                          for (const Value& element : v) out += (out.size() > 1 ? ", " : "") + str(element);
                          return out + "]";
                        },
                    },
                    value.data);
}

std::string shortened(const std::string& text, std::size_t columns) {
  std::string out;
  for (const char c : valid_utf8(text)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool starts_character = (byte & 0xc0) != 0x80;
    if (starts_character && columns-- == 0) return out + "…";
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      constexpr const char* kHex = "0123456789abcdef";
      out += std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    }
  }
  return out;
}

std::string brief(const Value& value) { return shortened(str(value)); }

void check_number_of_settings(const std::string& file, const Settings& settings) {
  require<ConfigError>(settings.size() <= kMaxSettings, file, " holds ", settings.size(), " settings, more than ",
                       kMaxSettings, ": this is not a config");
}

std::string kind_of(const Value& value) {
  constexpr const char* kKinds[] = {"nothing", "text", "a whole number", "a number", "true or false", "a list", "text"};
  return kKinds[value.data.index()];
}

}  // namespace trireme
