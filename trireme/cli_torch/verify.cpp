// `trireme verify CONFIG -n N`
#include "trireme/verify/verify.hpp"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/reshape/layout_changes.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/out_of_memory.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/train/setup/checked_config.hpp"
#include "trireme/train/setup/component_options.hpp"

namespace trireme::cli {
namespace {

void set(config::Settings& settings, const std::string& path, config::Value value, const std::string& note) {
  std::erase_if(settings, [&](const config::Setting& each) { return each.path == path; });
  settings.push_back({.path = path, .value = std::move(value), .place = {.file = "", .note = note}});
}

/// The same config on the layout of --against: axes that it does not name are 1.
Config against(const VerifyCommand& command, const std::string& toml, const Config& config) {
  const std::string note = "--against " + command.against;
  std::map<std::string, std::int64_t> layout{{"pp", 1}, {"dp", 1}, {"cp", 1}, {"tp", 1}, {"ep", 1}, {"replicate", 1}};
  layout["expert_tp"] = 0;
  for (const auto& [key, value] : checkpoint::parse_layout_changes(command.against, "--against")) layout[key] = value;
  config::Settings settings = command.overrides;
  for (const auto& [key, value] : layout) set(settings, "parallelism." + key, {value}, note);
  set(settings, "parallelism.pp_schedule_file", {std::string()}, note);
  if (layout["pp"] == 1) set(settings, "parallelism.pp_schedule", {std::string("1f1b")}, note);
  if (!layout.contains("virtual_stages")) set(settings, "parallelism.virtual_stages", {std::int64_t{1}}, note);
  const TrainingConfig& t = config.training;
  const std::int64_t dp = layout["dp"];
  require<ConfigError>(dp >= 1 && t.global_batch_size % dp == 0, note, ": the global batch of ", t.global_batch_size,
                       " samples cannot be divided among dp = ", dp, " replicas");
  // As many samples of all replicas in a microbatch, where that is possible: a balancing loss may be over them.
  const std::int64_t of_all = t.micro_batch_size * config.parallelism.dp;
  const std::int64_t micro = of_all % dp == 0 ? of_all / dp : std::gcd(t.micro_batch_size, t.global_batch_size / dp);
  set(settings, "training.micro_batch_size", {micro}, note);
  set(settings, "training.grad_accum", {t.global_batch_size / dp / micro}, note);
  set(settings, "training.global_batch_size", {t.global_batch_size}, note);
  return training_config(command.file, toml, settings, 0);
}

/// What the comparison cannot see: the other layout has a micro_batch_size that makes the loss the same.
std::string note_on_balance(const Config& config) {
  const std::int64_t micro_batch = config.training.micro_batch_size, of_all = micro_batch * config.parallelism.dp;
  const bool is_pooled = config.model.num_local_experts > 0 &&
                         config::parse_router_balance(config.model.router_aux_loss_type) == config::RouterBalance::hf;
  if (!is_pooled || of_all == micro_batch) return "";
  return text("note: router_aux_loss_type = \"hf\": the balancing loss is over the ", of_all,
              " samples of all replicas in a microbatch, so it was compared with as many on the other layout; with ",
              "micro_batch_size = ", micro_batch, " another dp trains with another loss\n\n");
}

int tell(const VerifyCommand& command, const Config& config, const VerifyResult& result, Console& console) {
  if (command.json) {
    console.out << result.json() << "\n";
  } else {
    console.out << "layout  " << config::dense_grid(config.parallelism).str() << " zero=" << config.parallelism.zero
                << ", compared with " << result.reference << " in " << command.dtype << "\n\n"
                << result.table() << "\n"
                << note_on_balance(config) << result.str() << "\n";
  }
  return result.passed ? 0 : 1;
}

}  // namespace

int run_verify(const VerifyCommand& command, Console& console) {
  const Variables variables = process_variables();
  const std::string toml = config::read_config_file(command.file);
  const VerifyOptions options{.steps = command.steps, .dtype = command.dtype, .tolerances = {}};
  RankMain how{.words = command.words, .variables = variables};
  how.quiet = true;
  const bool launched = detect_environment(variables, {}, visible_gpus()).launcher != "alone";
  if (!launched && visible_gpus() == 0) {  // ranks are threads of this process
    std::vector<std::string> warnings;
    const Config config = training_config(command.file, toml, command.overrides, command.ranks, &warnings);
    for (const std::string& warning : warnings) console.err << "warning: " << warning << "\n";
    return with_memory_errors([&] {
      return tell(command, config,
                  command.against.empty() ? verify(config, options)
                                          : verify_against(config, against(command, toml, config), options),
                  console);
    });
  }
  require<ConfigError>(command.against.empty(), "--against ", command.against,
                       ": is for ranks on the CPU of one machine\n  fix: without it, or with TRIREME_DEVICE=cpu");
  how.flags.local_ranks = command.ranks;
  return rank_main(how, [&](const Environment& env) {
    const Config config = training_config(command.file, toml, command.overrides, env.world_size);
    ParallelContext context(parallel_sizes(config), env, variables, context_options(config.comm));
    const VerifyResult result = with_memory_errors([&] { return verify(config, context, options); });
    // Rank 0 decides: the first rank that fails ends the job, and the report must be out by then.
    if (env.rank != 0) return 0;
    const int code = tell(command, config, result, console);
    console.out.flush();
    return code;
  });
}

}  // namespace trireme::cli
