#pragma once
// A setting's value into a field, and what keeps it from fitting.
#include <optional>
#include <string>

#include "trireme/config/read/setting.hpp"
#include "trireme/config/schema/fields.hpp"

namespace trireme::config {

/// Writes `value` into the field when it fits: right type, within the field's limits, one of its choices. Returns ""
/// then, and otherwise what is wrong, to follow "key = value " in a message; the field is unchanged.
std::string assign_value(const Field& field, const Value& value);

/// Text, whether it came quoted from a file or raw from a flag; "" for anything else.
std::string plain_text(const Value& value);
/// A number, whether it came from a file or raw from a flag; nothing for anything else.
std::optional<double> plain_number(const Value& value);

}  // namespace trireme::config
