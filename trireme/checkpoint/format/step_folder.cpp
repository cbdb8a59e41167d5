#include "trireme/checkpoint/format/step_folder.hpp"

#include <charconv>

#include "trireme/base/error.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kStep = "step-", kTemporary = ".tmp-", kTrash = ".trash-", kLatest = ".latest.tmp-";
constexpr std::size_t kIdDigits = 32;

bool is_name_with_id(std::string_view name, std::string_view begin, std::string_view before_id, bool has_step) {
  if (!name.starts_with(begin) || name.size() < begin.size() + before_id.size() + kIdDigits) return false;
  name.remove_prefix(begin.size());
  const std::string_view id = name.substr(name.size() - kIdDigits);
  name.remove_suffix(kIdDigits);
  if (!is_id(id) || !name.ends_with(before_id)) return false;
  name.remove_suffix(before_id.size());
  return has_step ? step_in_name(name).has_value() : name.empty();
}

}  // namespace

bool is_id(std::string_view word) {
  return word.size() == kIdDigits && word.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string step_name(std::int64_t step) { return text(kStep, step); }

std::optional<std::int64_t> step_in_name(std::string_view name) {
  if (!name.starts_with(kStep)) return std::nullopt;
  const std::string_view digits = name.substr(kStep.size());
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return error == std::errc() && step >= 0 && step_name(step) == name ? std::optional(step) : std::nullopt;
}

std::string temporary_step_name(std::int64_t step, const std::string& id) {
  return text(step_name(step), kTemporary, id);
}
std::string trash_name(std::int64_t step, const std::string& id) { return text(kTrash, step_name(step), "-", id); }
std::string temporary_latest_name(const std::string& id) { return text(kLatest, id); }

bool is_unfinished_name(std::string_view name) {
  return is_name_with_id(name, "", kTemporary, true) || is_name_with_id(name, kTrash, "-", true) ||
         is_name_with_id(name, kLatest, "", false);
}

}  // namespace trireme::checkpoint
