#include "trireme/checkpoint/reshape/layout_changes.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::checkpoint {
namespace {

using schedule::ScheduleKind;

constexpr std::array<std::string_view, 9> kLayoutKeys = {
    "pp", "dp", "cp", "tp", "ep", "expert_tp", "zero", "replicate", "virtual_stages"};

std::optional<std::int64_t> whole_number(std::string_view digits) {
  std::int64_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool fine = error == std::errc() && end == digits.data() + digits.size() && value >= 0;
  return fine ? std::optional(value) : std::nullopt;
}

const std::string& name_of(ScheduleKind kind) { return schedule::schedule_names().at(static_cast<std::size_t>(kind)); }

std::int64_t number_of_chunks(const ParallelismConfig& p) {
  return p.pp *
         schedule::chunks_per_rank(schedule::parse_schedule_kind(p.pp_schedule), static_cast<int>(p.virtual_stages));
}

}  // namespace

LayoutChanges parse_layout_changes(const std::string& words, const std::string& option) {
  LayoutChanges changes;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string key = word.substr(0, equals);
    const std::optional<std::int64_t> value =
        equals < word.size() ? whole_number(std::string_view(word).substr(equals + 1)) : std::nullopt;
    require<ConfigError>(value && std::ranges::find(kLayoutKeys, key) != kLayoutKeys.end(), option, " ",
                         config::shortened(words), ": \"", config::shortened(word),
                         "\" is not KEY=NUMBER\n  fix: such as tp=2,pp=1; the keys are pp, dp, cp, tp, ep, expert_tp, "
                         "zero, replicate and virtual_stages");
    require<ConfigError>(std::ranges::find(changes, key, &LayoutChanges::value_type::first) == changes.end(), option,
                         " ", config::shortened(words), ": ", key, " is given twice\n  fix: give it once");
    changes.emplace_back(key, *value);
  }
  return changes;
}

void apply(const LayoutChanges& changes, config::LoadedConfig& loaded) {
  ParallelismConfig& p = loaded.config.parallelism;
  const ParallelismConfig before = p;
  const auto named = [&](std::string_view key) {
    return std::ranges::find(changes, key, &LayoutChanges::value_type::first) != changes.end();
  };
  std::vector<config::Field> fields = config::fields(loaded.config);
  for (const auto& [key, value] : changes) {
    const std::string path = text("parallelism.", key);
    const auto field = std::ranges::find(fields, path, &config::Field::key);
    require(field != fields.end(), path, " is no key");
    const std::string fault = config::assign_value(*field, {value});
    // -1 and 0 mean "as many as there are": here there are none yet.
    require<ConfigError>(fault.empty() && (value > 0 || key == "zero"), "--to ", key, "=", value, ": ",
                         fault.empty() ? "must be at least 1" : fault);
    loaded.origins[path] = {config::Origin::Kind::flag, {"", 0, 0, text("--to ", key, "=", value)}};
  }
  if (before.expert_tp == before.tp && !named("expert_tp")) p.expert_tp = p.tp;
  if (p.virtual_stages != before.virtual_stages)
    p.pp_schedule = name_of(p.virtual_stages > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b);
  if (number_of_chunks(p) != number_of_chunks(before)) p.stages.clear();
  throw_if_any(config::validate_layout(loaded));
}

}  // namespace trireme::checkpoint
