#include <numeric>

#include "trireme/config/rules/rules.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::config {
namespace {

int narrow(std::int64_t degree) { return static_cast<int>(degree); }

/// dp x tp x pp x cp without overflow.
bool has_too_many_ranks(const Rules& rules) {
  const std::int64_t replica = ranks_of_a_replica(rules.config.parallelism);
  return replica > Grid::kMaxRanks || rules.dp() > Grid::kMaxRanks / replica;
}

/// An error of a function that does not know where the value is from.
void add_violation(Rules& rules, const char* key, const std::string& what) {
  const std::size_t fix = what.find("\n  fix: ");
  rules.violation(key, what.substr(0, fix), "", fix == std::string::npos ? "" : what.substr(fix + 8));
}

/// The schedule of a file says itself how many chunks there are, and on which ranks.
void check_schedule_file(Rules& rules) {
  const ParallelismConfig& p = rules.config.parallelism;
  try {
    if (rules.config.training.grad_accum > 0) pipeline_schedule(p, rules.config.training.grad_accum);
    if (!rules.any()) pipeline_chunks(rules.config.model, p);  // by the sizes of a model that is right
  } catch (const ConfigError& e) {
    add_violation(rules, "parallelism.pp_schedule_file", e.what());
  }
}

void check_stages(Rules& rules) {
  const ParallelismConfig& p = rules.config.parallelism;
  const std::int64_t layers = rules.config.model.num_hidden_layers;
  if (!p.pp_schedule_file.empty()) {
    check_schedule_file(rules);
    return;
  }
  const schedule::ScheduleKind kind = schedule::parse_schedule_kind(p.pp_schedule);
  const std::int64_t per_rank = schedule::chunks_per_rank(kind, narrow(p.virtual_stages));
  const std::int64_t chunks = p.pp * per_rank;
  if (p.virtual_stages > 1 && kind != schedule::ScheduleKind::interleaved)
    rules.violation_of({"parallelism.virtual_stages", "parallelism.pp_schedule"},
                       text("virtual_stages = ", p.virtual_stages, " with pp_schedule = \"", p.pp_schedule, "\""),
                       "only interleaved-1f1b takes a number of chunks",
                       "set pp_schedule = \"interleaved-1f1b\" or virtual_stages = 1");
  if (p.pp > 1 && chunks > layers)
    rules.violation_of(
        {"parallelism.pp", "model.num_hidden_layers", "parallelism.virtual_stages"},
        text("num_hidden_layers = ", layers, " for ", chunks, " pipeline chunks (pp ", p.pp, " × ", per_rank, ")"),
        "each chunk needs a layer", "lower pp or virtual_stages");
  if (p.stages.empty()) return;
  const std::int64_t sum = std::accumulate(p.stages.begin(), p.stages.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(p.stages.size()) != chunks)
    rules.violation_of({"parallelism.stages", "parallelism.pp"},
                       text("stages lists ", p.stages.size(), " chunks, the pipeline has ", chunks),
                       text("pp ", p.pp, " × ", per_rank, " chunks per rank"));
  else if (sum != layers)
    rules.violation_of({"parallelism.stages", "model.num_hidden_layers"},
                       text("stages adds up to ", sum, " layers, the model has ", layers),
                       "each layer is in one chunk");
}

void check_grid(Rules& rules) {
  const ParallelismConfig& p = rules.config.parallelism;
  if (has_too_many_ranks(rules)) {
    rules.violation("parallelism.dp", text("dp × tp × pp × cp is more than ", Grid::kMaxRanks, " ranks"));
    return;
  }
  // Grid checks the order and the expert view.
  try {
    dense_grid(p);
    const std::optional<Grid> experts = p.dp > 0 ? expert_grid(rules.config.model, p) : std::nullopt;
    if (experts && p.zero > 0 && experts->degree(Axis::edp) % p.replicate != 0)
      rules.violation_of({"parallelism.replicate", "parallelism.ep"},
                         text("parallelism.replicate = ", p.replicate, ", but the same experts are on ",
                              experts->degree(Axis::edp), " ranks"),
                         "replicate divides dp × cp × tp / (ep × expert_tp)");
  } catch (const ConfigError& e) {
    const std::string what = e.what();
    add_violation(rules, what.find("order") != std::string::npos ? "parallelism.order" : "parallelism.ep", what);
  }
}

}  // namespace

void check_ranks(Rules& rules) {
  const ParallelismConfig& p = rules.config.parallelism;
  const int started = rules.started.ranks;
  const std::int64_t replica = ranks_of_a_replica(p);
  if (p.dp == 0) {
    rules.violation("parallelism.dp", "parallelism.dp = 0", "", "at least 1, or -1: all remaining ranks");
    return;
  }
  if (started <= 0 || has_too_many_ranks(rules)) return;
  Violation v;
  v.place = first_given(rules.loaded, {"parallelism.dp", "parallelism.tp", "parallelism.pp", "parallelism.cp"});
  v.launch = rules.started.how;
  const char* were = started == 1 ? " was started" : " were started";
  if (p.dp == -1) {
    if (started % replica == 0) return;
    v.headline = text("one replica of the model needs ", replica, replica == 1 ? " rank, " : " ranks, ", started, were);
    v.detail = text("[parallelism]  tp=", p.tp, " pp=", p.pp, " cp=", p.cp, "          ", p.tp, " × ", p.pp, " × ",
                    p.cp, " = ", replica);
    v.fix = text("start a multiple of ", replica, " ranks, or lower tp, pp or cp");
  } else {
    const std::int64_t needed = p.dp * replica;
    if (needed == started) return;
    v.headline = text("the layout needs ", needed, needed == 1 ? " rank, " : " ranks, ", started, were);
    v.detail = text("[parallelism]  dp=", p.dp, " tp=", p.tp, " pp=", p.pp, " cp=", p.cp, "          ", p.dp, " × ",
                    p.tp, " × ", p.pp, " × ", p.cp, " = ", needed);
    v.fix = text("start ", needed, needed == 1 ? " rank, or " : " ranks, or ",
                 started % replica == 0 ? text("set dp = ", started / replica, " (or dp = -1: all remaining ranks)")
                                        : text("lower tp, pp or cp: one replica takes ", replica));
  }
  rules.add(std::move(v));
}

void check_layout(Rules& rules) {
  const ParallelismConfig& p = rules.config.parallelism;
  if (rules.config.model.num_hidden_layers > 0) check_stages(rules);
  if (p.replicate > 1 && p.dp > 0 && p.dp % p.replicate != 0)
    rules.violation_of({"parallelism.replicate", "parallelism.dp"},
                       text("parallelism.dp = ", p.dp, " is not divisible by replicate = ", p.replicate),
                       "dp = replicate × shard");
  if (!parse_zero_unit(p.zero_unit))
    rules.violation("parallelism.zero_unit", text("zero_unit = \"", shortened(p.zero_unit), "\""),
                    "\"layer\", \"model\" or a number of layers");
  if (p.dp != 0) check_grid(rules);
}

}  // namespace trireme::config
