#pragma once
// Environment variables as a map, so that only main() reads the real ones, and strict number parsing.
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

namespace trireme {

using Variables = std::map<std::string, std::string>;

/// An empty variable counts as unset, as in Kubernetes templates.
bool is_set(const Variables& variables, const std::string& name);

/// "" if it is unset.
std::string value_of(const Variables& variables, const std::string& name);

/// The first of `names` that is set; "" if none is.
std::string first_set(const Variables& variables, std::initializer_list<const char*> names);

/// nullopt if it is unset. ConfigError if it is not an integer from `low` to `high`.
std::optional<int> number_of(const Variables& variables, const std::string& name, int low, int high);

/// Parses `text`, the value of `name`; ConfigError as above.
int strict_number(const std::string& name, const std::string& text, int low, int high);

}  // namespace trireme
