#pragma once
// Helpers for tests of config/.
#include <cmath>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <rapidcheck.h>

#include "trireme/base/error.hpp"
#include "trireme/base/process_end.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/testing/layout_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {

inline std::string testdata_path(const std::string& name) {
  return std::string(TRIREME_SOURCE_DIR) + "/trireme/config/testdata/" + name;
}
inline std::string testdata(const std::string& name) { return file_contents(testdata_path(name)); }

inline config::Value raw(const std::string& text) { return {config::RawText{text}}; }
inline config::Value whole(std::int64_t value) { return {value}; }

/// A config and its messages.
struct Told {
  std::string toml;
  std::string message;
};

using Flags = std::vector<std::string>;

/// A model, so that the config has no other errors.
inline const char* const kTiny = "model.preset = \"tiny-llama\"\n";

inline config::LoadedConfig load(const std::string& toml, const Flags& flags = {}) {
  return config::load_config_text("run.toml", toml, flags);
}
/// Loads and checks a config that must be valid.
inline config::LoadedConfig load_good(const std::string& toml, const Flags& flags = {},
                                      const config::Started& started = {}) {
  config::LoadedConfig loaded = load(toml, flags);
  config::check_config(loaded, started);
  return loaded;
}
/// The message after "error: " when the config is checked; "no error" if it is valid.
inline std::string error_of(const std::string& toml, const Flags& flags = {}, const config::Started& started = {}) {
  return message_of<ConfigError>([&] { load_good(toml, flags, started); });
}

/// The value of a key in TOML syntax; "no such key" for an unknown key.
inline std::string value_of(Config& config, const std::string& key) {
  for (const config::Field& field : config::fields(config))
    if (field.key == key) return config::toml_text(field.value);
  return "no such key";
}
/// Every key with its value.
inline std::map<std::string, std::string> values_of(Config config) {
  std::map<std::string, std::string> values;
  for (const config::Field& field : config::fields(config)) values[field.key] = config::toml_text(field.value);
  return values;
}

/// The word repeated as often as it fits into `bytes`.
inline std::string repeated(const std::string& word, std::size_t bytes) {
  std::string out = word;
  while (2 * out.size() <= bytes) out += out;
  return out + out.substr(0, (bytes - out.size()) / word.size() * word.size());
}

/// CPU seconds of `body`: hardly affected by the load of the machine.
template <class Body>
double seconds_of(const Body& body) {
  const std::clock_t start = std::clock();
  body();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}
/// Malicious input must be rejected within a second. Sanitizers make a program several times slower.
constexpr double kDeadlineSeconds = kHasSanitizer ? 10 : 1;

/// Random numbers from a seed, for instance one drawn by RapidCheck: a config needs hundreds of them, which RapidCheck
/// would draw slowly.
class Dice {
 public:
  explicit Dice(std::uint64_t seed = *rc::gen::arbitrary<std::uint64_t>()) : engine_(seed) {}
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool toss() { return pick(0, 1) == 1; }
  template <class T>
  const T& one_of(const std::vector<T>& all, int from = 0) {
    return all[static_cast<std::size_t>(pick(from, static_cast<int>(all.size()) - 1))];
  }

 private:
  std::mt19937_64 engine_;
};

/// Assigns a random valid value to the field.
inline void randomise(const config::Field& field, Dice& dice) {
  static const std::vector<std::string> words = {"",       "a",         "two words", "quote \" and \\", "# no comment",
                                                 "ünï☃😀", "line\nend", "a,b",       "[1, 2]",          "-1",
                                                 "true",   " spaced ",  "C:\\path",  "$HOME",           "tab\t"};
  const auto number = [&] {
    const double low = std::max(field.min, -1e9), high = std::min(field.max, 1e9);
    return low + std::pow(dice.pick(field.above_min ? 1 : 0, field.below_max ? 999 : 1000) / 1000.0, 3) * (high - low);
  };
  const auto one = [&](auto* target) {
    using T = std::remove_pointer_t<decltype(target)>;
    if constexpr (std::is_same_v<T, std::string>) {
      *target = field.choices.empty() ? dice.one_of(words, field.filled ? 1 : 0) : dice.one_of(field.choices);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      *target = std::llround(number());
    } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, Steps>) {
      *target = number();
    } else {
      *target = dice.toss();
    }
  };
  const auto set = [&](auto* target) {
    using T = std::remove_pointer_t<decltype(target)>;
    if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, Steps> || std::is_arithmetic_v<T>) {
      one(target);
    } else {
      target->resize(static_cast<std::size_t>(dice.pick(0, 3)));
      for (auto& element : *target) one(&element);
    }
  };
  std::visit(set, field.value);
}

/// Presets and model.hf set other keys too: tests of a single key skip them.
inline bool stands_alone(const config::Field& field) { return field.key != "model.preset" && field.key != "model.hf"; }

}  // namespace trireme
