#include "trireme/base/human.hpp"
#include "trireme/config/rules/rules.hpp"
#include "trireme/config/schema/dense_grid.hpp"

namespace trireme::config {
namespace {

constexpr std::int64_t kMaxBatch = 1'000'000'000;

void check_length(Rules& rules, const std::string& key, std::int64_t length) {
  const ParallelismConfig& p = rules.config.parallelism;
  const std::int64_t parts = context_split_of(rules.config).divisor();
  const bool zigzag = parts > p.cp;
  if (p.cp > 1 && length % parts != 0) {
    const std::int64_t below = length / parts * parts;
    rules.violation_of({key, "parallelism.cp"},
                       text("seq_len = ", length, " is not divisible by ", zigzag ? "2 × cp = " : "cp = ", parts),
                       zigzag ? "the zig-zag split cuts a sequence into 2 × cp parts" : "each cp rank takes one part",
                       below == 0 ? text("at least ", parts) : text("nearest: ", below, " or ", below + parts));
  } else if (p.sequence_parallel && p.tp > 1 && length / p.cp % p.tp != 0) {
    rules.violation_of({key, "parallelism.tp", "parallelism.cp", "parallelism.sequence_parallel"},
                       text("seq_len = ", length, p.cp > 1 ? text(" / cp ", p.cp) : "",
                            " is not divisible by parallelism.tp = ", p.tp),
                       "sequence parallel cuts it over tp", "change seq_len, or set sequence_parallel = false");
  }
}

}  // namespace

void check_batch(Rules& rules) {
  const TrainingConfig& t = rules.config.training;
  const bool derived_accum = rules.is_derived("training.grad_accum"),
             derived_micro = rules.is_derived("training.micro_batch_size"),
             derived_batch = rules.is_derived("training.global_batch_size");
  const std::int64_t dp = rules.dp(), one_replica = t.micro_batch_size * t.grad_accum, product = one_replica * dp;
  if (rules.config.parallelism.dp == 0) return;
  if (product > kMaxBatch) {
    rules.violation_of({"training.grad_accum", "training.micro_batch_size", "parallelism.dp"},
                       text("micro_batch_size ", t.micro_batch_size, " × grad_accum ", t.grad_accum, " × dp ", dp,
                            " is more than ", thousands(kMaxBatch), " sequences a step"));
    return;
  }
  if (product == t.global_batch_size && product > 0) return;
  // If all three are given, an unset dp follows from them.
  const bool all_given = !derived_accum && !derived_micro && !derived_batch;
  if (rules.config.parallelism.dp < 0 && all_given && t.global_batch_size % one_replica == 0) return;
  const auto factor = [](const char* name, std::int64_t value, bool derived) {
    return derived ? std::string(name) : text(name, " ", value);
  };
  const std::string headline = text("global_batch_size = ", t.global_batch_size, " ≠ ",
                                    factor("micro_batch_size", t.micro_batch_size, derived_micro), " × ",
                                    factor("grad_accum", t.grad_accum, derived_accum), " × dp",
                                    rules.config.parallelism.dp < 0 && all_given ? "" : text(" ", dp));
  const std::int64_t unit = dp * (derived_accum ? t.micro_batch_size : derived_micro ? t.grad_accum : 0);
  std::string hint = text(product, " by the right side: leave one of the three out");
  if (unit > 0) {
    const char* open = derived_accum ? "grad_accum" : "micro_batch_size";
    const std::int64_t below = t.global_batch_size / unit;
    hint = below == 0 ? text("at least ", unit, " (", open, " 1)")
                      : text("nearest: ", below * unit, " (", open, " ", below, ") or ", (below + 1) * unit, " (", open,
                             " ", below + 1, ")");
  }
  rules.violation_of(
      {"training.global_batch_size", "training.micro_batch_size", "training.grad_accum", "parallelism.dp"}, headline,
      hint);
}

void check_sequence(Rules& rules) {
  const Config& c = rules.config;
  const ParallelismConfig& p = c.parallelism;
  check_length(rules, "training.seq_len", c.training.seq_len);
  for (std::size_t i = 0; i < c.data.size(); ++i)
    if (c.data[i].seq_len != c.training.seq_len) check_length(rules, text("data.", i, ".seq_len"), c.data[i].seq_len);
  const std::int64_t heads = c.model.num_attention_heads;
  if (p.cp > 1 && p.cp_method == "ulysses" && heads % (p.tp * p.cp) != 0)
    rules.violation_of({"parallelism.cp", "parallelism.tp", "parallelism.cp_method"},
                       text("num_attention_heads = ", heads, " is not divisible by tp ", p.tp, " × cp ", p.cp),
                       "ulysses cuts heads over cp too", "set cp_method = \"ring\"");
  if (p.cp > 1 && c.model.attention_dropout > 0)
    rules.violation_of({"parallelism.cp", "model.attention_dropout"},
                       text("attention_dropout = ", c.model.attention_dropout, " with cp = ", p.cp),
                       "attention over a ring cannot drop weights", "set model.attention_dropout = 0");
}

}  // namespace trireme::config
