#pragma once
// Environment variables as a map, so that nothing below the program's main reads the real ones, and strict numbers.
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

namespace trireme {

using Variables = std::map<std::string, std::string>;

/// An empty variable counts as one that is not set, as in Kubernetes templates.
bool is_set(const Variables& variables, const std::string& name);

/// "" if it is not set.
std::string value_of(const Variables& variables, const std::string& name);

/// The first of `names` that is set; "" if none is.
std::string first_set(const Variables& variables, std::initializer_list<const char*> names);

/// Nothing if it is not set. ConfigError if it is not a whole number from `low` to `high`.
std::optional<int> number_of(const Variables& variables, const std::string& name, int low, int high);

/// The number `text`, which `name` was set to; ConfigError as above.
int strict_number(const std::string& name, const std::string& text, int low, int high);

}  // namespace trireme
