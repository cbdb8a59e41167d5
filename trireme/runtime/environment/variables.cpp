#include "trireme/runtime/environment/variables.hpp"

#include <charconv>
#include <system_error>

#include "trireme/base/error.hpp"

namespace trireme {

bool is_set(const Variables& variables, const std::string& name) { return !value_of(variables, name).empty(); }

std::string value_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

std::string first_set(const Variables& variables, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (is_set(variables, name)) return name;
  return "";
}

std::optional<int> number_of(const Variables& variables, const std::string& name, int low, int high) {
  if (!is_set(variables, name)) return std::nullopt;
  return strict_number(name, value_of(variables, name), low, high);
}

int strict_number(const std::string& name, const std::string& text, int low, int high) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = end == text.data() + text.size() && !text.empty() && error != std::errc::invalid_argument;
  require<ConfigError>(is_number, name, " = \"", text, "\": must be a whole number from ", low, " to ", high);
  require<ConfigError>(error == std::errc{} && low <= value && value <= high, name, " = ", text, ": must be from ", low,
                       " to ", high);
  return value;
}

}  // namespace trireme
