#pragma once
// The names of checkpoints and of what a save or a prune leaves unfinished.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

/// 32 hexadecimal digits: of these a name may be made.
bool is_id(std::string_view word);

/// "step-400"
std::string step_name(std::int64_t step);
/// The step of such a name; nullopt for any other name, also for "step-0400": no two names mean one step.
std::optional<std::int64_t> step_in_name(std::string_view name);

/// "step-400.tmp-ID", ".trash-step-400-ID" and ".latest.tmp-ID"
std::string temporary_step_name(std::int64_t step, const std::string& id);
std::string trash_name(std::int64_t step, const std::string& id);
std::string temporary_latest_name(const std::string& id);
/// Whether it is a name of one of these three forms.
bool is_unfinished_name(std::string_view name);

}  // namespace trireme::checkpoint
