#pragma once
// Words that the tests of this folder share.
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <rapidcheck.h>

#include "trireme/base/error.hpp"
#include "trireme/base/temp_folder.hpp"
#include "trireme/config/fields.hpp"
#include "trireme/config/parse.hpp"
#include "trireme/config/validate.hpp"
#include "trireme/layout/test_words.hpp"

namespace trireme {

inline std::string testdata_path(const std::string& name) {
  return std::string(TRIREME_SOURCE_DIR) + "/trireme/config/testdata/" + name;
}
inline std::string testdata(const std::string& name) { return file_contents(testdata_path(name)); }

inline Value raw(const std::string& text) { return {RawText{text}}; }
inline Value whole(std::int64_t value) { return {value}; }

/// A config and what is told about it.
struct Told {
  std::string toml;
  std::string message;
};

using Flags = std::vector<std::string>;

/// A model, so that nothing else is wrong.
inline const char* const kTiny = "model.preset = \"tiny-llama\"\n";

inline LoadedConfig load(const std::string& toml, const Flags& flags = {}) {
  return load_config_text("run.toml", toml, flags);
}
/// Loaded without an error, and checked.
inline LoadedConfig load_good(const std::string& toml, const Flags& flags = {}, const Started& started = {}) {
  LoadedConfig loaded = load(toml, flags);
  check_config(loaded, started);
  return loaded;
}
/// What a person reads after "error: " when the config is checked; "no error" when it is good.
inline std::string error_of(const std::string& toml, const Flags& flags = {}, const Started& started = {}) {
  return message_of<ConfigError>([&] { load_good(toml, flags, started); });
}

/// The value of a key as TOML writes it; "no such key" when there is none.
inline std::string value_of(Config& config, const std::string& key) {
  for (const Field& field : fields(config))
    if (field.key == key) return toml_text(field.value);
  return "no such key";
}
/// Every key with its value.
inline std::map<std::string, std::string> values_of(Config config) {
  std::map<std::string, std::string> values;
  for (const Field& field : fields(config)) values[field.key] = toml_text(field.value);
  return values;
}

/// As often as it fits into `bytes`.
inline std::string repeated(const std::string& word, std::size_t bytes) {
  std::string out = word;
  while (2 * out.size() <= bytes) out += out;
  return out + out.substr(0, (bytes - out.size()) / word.size() * word.size());
}

/// Seconds that `body` takes.
template <class Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
/// Hostile input must be refused within a second; a loaded machine gets a few more.
constexpr double kDeadlineSeconds = 5;

namespace detail {
inline std::string any_text(const Field& field) {
  static const std::vector<std::string> words = {"",       "a",         "two words", "quote \" and \\", "# no comment",
                                                 "ünï☃😀", "line\nend", "a,b",       "[1, 2]",          "-1",
                                                 "true",   " spaced ",  "C:\\path",  "$HOME",           "tab\t"};
  return words[static_cast<std::size_t>(pick(field.filled ? 1 : 0, static_cast<int>(words.size()) - 1))];
}
inline double any_number(const Field& field) {
  const double low = std::max(field.min, -1e9), high = std::min(field.max, 1e9);
  const double at = pick(field.above_min ? 1 : 0, 1000) / 1000.0;
  return low + at * at * at * (high - low);
}
inline std::int64_t any_whole(const Field& field) { return static_cast<std::int64_t>(std::llround(any_number(field))); }
}  // namespace detail

/// Writes a random value that the field allows into it.
inline void randomise(const Field& field) {
  using namespace detail;
  const auto set = [&](auto* target) {
    using T = std::remove_pointer_t<decltype(target)>;
    const auto one = [&](auto kind) {
      using Kind = decltype(kind);
      if constexpr (std::is_same_v<Kind, std::string>) {
        if (field.choices.empty()) return any_text(field);
        return field.choices[static_cast<std::size_t>(pick(0, static_cast<int>(field.choices.size()) - 1))];
      } else if constexpr (std::is_same_v<Kind, std::int64_t>) {
        return any_whole(field);
      } else if constexpr (std::is_same_v<Kind, double>) {
        return any_number(field);
      } else {
        return toss();
      }
    };
    if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
      *target = one(T{});
    } else {
      target->clear();
      for (int n = pick(0, 3); n > 0; --n) target->push_back(one(typename T::value_type{}));
    }
  };
  std::visit(set, field.value);
}

/// Presets and model.hf give values to other keys: a test of one key leaves them out.
inline bool stands_alone(const Field& field) { return field.key != "model.preset" && field.key != "model.hf"; }

}  // namespace trireme
