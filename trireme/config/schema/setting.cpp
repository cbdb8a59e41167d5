#include "trireme/config/schema/setting.hpp"

#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/config/schema/fields.hpp"

namespace trireme::config {
namespace {

constexpr std::size_t kMaxSettings = 10'000;

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};

constexpr std::size_t kLongestCharacter = 4;  // bytes in UTF-8

/// A list is cut off after `bytes`, since a message shows no more of it.
std::string text_of(const Value& value, std::size_t bytes) {
  return std::visit(Match{
                        [](const Nothing&) { return std::string(); },
                        [](std::string v) { return toml_text(&v); },
                        [](std::int64_t v) { return toml_text(&v); },
                        [](double v) { return toml_text(&v); },
                        [](bool v) { return toml_text(&v); },
                        [](const RawText& v) { return v.text; },
                        [&](const Values& v) {
                          std::string out = "[";
                          for (auto it = v.begin(); it != v.end() && out.size() <= bytes; ++it)
                            out += (out.size() > 1 ? ", " : "") + text_of(*it, bytes);
                          return out + "]";
                        },
                    },
                    value.data);
}

}  // namespace

std::string str(const Place& place) {
  if (place.file.empty()) return place.note;
  return place.line > 0 ? text(place.file, ":", place.line) : place.file;
}

std::string str(const Value& value) { return text_of(value, std::string::npos); }

std::string brief(const Value& value) {
  constexpr std::size_t kColumns = 80;
  return shortened(text_of(value, kLongestCharacter * (kColumns + 1)), kColumns);
}

std::string shortened(const std::string& text, std::size_t columns) {
  std::string out;
  for (const char c : valid_utf8(std::string_view(text).substr(0, kLongestCharacter * (columns + 1)))) {
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

void add_setting(const std::string& file, Settings& settings, Setting setting) {
  require<ConfigError>(settings.size() < kMaxSettings, file, " holds more than ", kMaxSettings,
                       " settings: this is not a config");
  settings.push_back(std::move(setting));
}

std::string kind_of(const Value& value) {
  constexpr const char* kKinds[] = {"nothing",       "a string", "a whole number", "a number",
                                    "true or false", "a list",   "a string"};
  return kKinds[value.data.index()];
}

}  // namespace trireme::config
