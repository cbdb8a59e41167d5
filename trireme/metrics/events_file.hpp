#pragma once
// events.jsonl of a run: when it started and where, warnings, checkpoints, and how it ended. One JSON object per line.
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "trireme/base/field.hpp"

namespace trireme::metrics {

inline constexpr const char* kEventsName = "events.jsonl";

/// {"time":1700000000.123,"event":"checkpoint","step":200} without a newline. `time`: in seconds since 1970.
std::string event_json(double time, std::string_view event, std::initializer_list<LogField> fields);

/// Appends an event of now to the run's events.jsonl. Returns false if it could not be written: a run goes on without.
bool add_event(const std::filesystem::path& run, std::string_view event, std::initializer_list<LogField> fields);

}  // namespace trireme::metrics
