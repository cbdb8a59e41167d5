#pragma once
// What the tables of fields share: limits, and fields with one more rule.
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/schema/fields.hpp"

namespace trireme::config {

inline constexpr double kMaxDegree = 1'000'000;  // of a parallel degree, of layers, heads and experts
inline constexpr double kMaxSize = 1e9;          // of a tensor dim, of a batch
inline constexpr double kMaxCount = 1e12;        // of anything counted

inline const std::vector<std::string> kDtypes = {"auto", "float64", "float32", "bfloat16", "float16"};
inline const std::vector<std::string> kRealDtypes = {"float64", "float32", "bfloat16", "float16"};

/// Of a list, each element.
inline Field one_of(std::string key, FieldValue value, const char* meaning, std::vector<std::string> choices) {
  Field field{std::move(key), value, meaning};
  field.choices = std::move(choices);
  return field;
}

/// A string, or a list of strings, that must not be empty.
inline Field filled(Field field) {
  field.filled = true;
  return field;
}

/// A probability of dropping an element: with 1 nothing would be left.
inline Field dropout(std::string key, double* value, const char* meaning) {
  Field field{std::move(key), value, meaning, 0, 1};
  field.below_max = true;
  return field;
}

/// Those of [model].
std::vector<Field> model_fields(ModelConfig& m);

}  // namespace trireme::config
