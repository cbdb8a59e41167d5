#pragma once
// Explains config keys, from the table of fields.
#include <string>

#include "trireme/config/schema/fields.hpp"

namespace trireme::config {

/// The meaning of a field, its unit, limits and choices: "longest sequence [tokens, at least 1]".
std::string meaning_of(const Field& field);

/// A key ("lr_scheduler.decay"), its last word, its name in another trainer (also without the dashes of a flag), or a
/// section, which lists its keys; empty: all of them. ConfigError with the nearest key for anything else.
std::string explain(const std::string& key);

/// Every key as tables in Markdown, one a section: the reference in docs/config.md.
std::string reference_markdown();

}  // namespace trireme::config
