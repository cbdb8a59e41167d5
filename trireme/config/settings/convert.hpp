#pragma once
// Converts a setting's value to the type of a field, with error messages.
#include <optional>
#include <string>

#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

/// Assigns `value` to the field if it has the right type, is within the limits and one of the choices. Returns "" on
/// success; otherwise the error, to follow "key = value " in a message, and the field is unchanged.
std::string assign_value(const Field& field, const Value& value);

/// A string, quoted in a file or raw from a flag; "" for anything else.
std::string plain_text(const Value& value);
/// A number, from a file or raw from a flag; nullopt for anything else.
std::optional<double> plain_number(const Value& value);

}  // namespace trireme::config
