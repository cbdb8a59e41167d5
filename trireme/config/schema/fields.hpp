#pragma once
// All config keys in one table: name, value, description and allowed values.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trireme/config/schema/config.hpp"

namespace trireme::config {

using FieldValue = std::variant<std::string*, std::int64_t*, double*, Steps*, bool*, std::vector<std::string>*,
                                std::vector<std::int64_t>*, std::vector<double>*>;

/// Every key has a reader in the sources (tests/repository/config_keys_test.py).
struct Field {
  std::string key;  // "parallelism.tp", "data.0.sources.0.path"
  FieldValue value;
  const char* meaning;
  // Constraints on the value alone; for lists they apply to each element. Rules across keys are in validate.cpp.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is excluded
  std::vector<std::string> choices = {};
  bool filled = false;     // must not be an empty string
  bool below_max = false;  // max itself is excluded
};

/// The fields of `config`, in print order. They point into it: resizing `config.data` invalidates those of its
/// elements.
std::vector<Field> fields(Config& config);

/// The field "data.I.start_step", or "data.I.sources.J.path" with `source` = J (else -1), of a stage; nullopt for an
/// unknown key. Faster than fields() for a config with thousands of sources.
std::optional<Field> find_data_field(DataStage& stage, std::int64_t source, const std::string& key);

/// "text", "a whole number", "a list of numbers": what the value must be.
const char* type_word(const FieldValue& value);
/// "steps", "tokens", "seconds"; empty for a value without a unit. Keys of [[data]] are without their index:
/// data.seq_len.
const char* unit_of(const std::string& key);

/// The value in TOML syntax: 3, 0.1, true, "text", [1, 2].
std::string toml_text(const FieldValue& value);
std::string toml_string(const std::string& value);

/// "parallelism" of "parallelism.tp"; "data" of "data.0.seq_len".
std::string section_of(const std::string& key);
/// "tp" of "parallelism.tp".
std::string leaf_of(const std::string& key);

}  // namespace trireme::config
