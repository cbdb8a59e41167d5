#include "trireme/planner/fit.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "trireme/base/error.hpp"

namespace trireme::planner {
namespace {

constexpr std::array<std::string_view, 3> kRecompute{"none", "selective", "full"};
constexpr std::int64_t kMostRanks = 4096;

/// A config with the four settings that save memory, and how much speed they cost compared with the original.
struct Candidate {
  Config config;
  int cost = 0;
  std::vector<std::string> settings{};
};

std::size_t recompute_level(const Config& config) {
  const auto found = std::ranges::find(kRecompute, config.activation_checkpoint.mode);
  return found == kRecompute.end() ? 0 : static_cast<std::size_t>(found - kRecompute.begin());
}

bool tp_divides(const ModelConfig& m, std::int64_t tp) {
  const std::int64_t kv = m.num_key_value_heads;
  return m.num_attention_heads % tp == 0 && m.intermediate_size % tp == 0 && (kv % tp == 0 || tp % kv == 0);
}

/// Every combination; the rough costs: a ZeRO stage adds messages, smaller microbatches use the device less well,
/// recompute adds a third of the work, tensor parallelism adds messages in every layer.
std::vector<Candidate> combinations(const Config& original) {
  std::vector<Candidate> all;
  const ParallelismConfig& p = original.parallelism;
  const TrainingConfig& t = original.training;
  const std::size_t recompute = recompute_level(original);
  for (std::int64_t zero = p.zero; zero <= 3; ++zero)
    for (std::size_t level = recompute; level < kRecompute.size(); ++level)
      for (std::int64_t split = 1; t.micro_batch_size % split == 0 && split <= t.micro_batch_size; split *= 2)
        for (std::int64_t wider = 1; p.dp % wider == 0 && tp_divides(original.model, p.tp * wider); wider *= 2) {
          Candidate next{.config = original};
          Config& c = next.config;
          const auto set = [&](auto& key, auto value, const char* name, int cost) {
            if (key == value) return;
            key = value;
            next.cost += cost;
            next.settings.push_back(text(name, " = ", value));
          };
          const auto doublings = [](std::int64_t factor) {
            int count = 0;
            while ((factor /= 2) > 0) ++count;
            return count;
          };
          set(c.parallelism.zero, zero, "parallelism.zero", static_cast<int>(zero - p.zero));
          set(c.training.micro_batch_size, t.micro_batch_size / split, "training.micro_batch_size",
              2 * doublings(split));
          if (level != recompute) {
            c.activation_checkpoint.mode = kRecompute[level];
            next.cost += 2 * static_cast<int>(level - recompute);
            next.settings.push_back(text("activation_checkpoint.mode = \"", kRecompute[level], "\""));
          }
          set(c.parallelism.tp, p.tp * wider, "parallelism.tp", 3 * doublings(wider));
          set(c.parallelism.dp, p.dp / wider, "parallelism.dp", 0);
          set(c.training.grad_accum, t.grad_accum * split * wider, "training.grad_accum", 0);  // the same batch
          if (!next.settings.empty()) all.push_back(std::move(next));
        }
  return all;
}

std::string joined(const std::vector<std::string>& settings) {
  std::string all;
  for (const std::string& setting : settings) all += (all.empty() ? "" : ", ") + setting;
  return all;
}

bool contains_all(const std::vector<std::string>& settings, const std::vector<std::string>& others) {
  return std::ranges::all_of(
      others, [&](const std::string& other) { return std::ranges::find(settings, other) != settings.end(); });
}

/// With ZeRO 3, on more hosts of the same kind, or on more GPUs: each has the memory of the present one. The batch is
/// the same as long as every rank has a sequence of it.
std::vector<FittingChange> with_more_ranks(Config config, const std::string& compute_dtype, bool on_gpu, double bytes) {
  ParallelismConfig& p = config.parallelism;
  TrainingConfig& t = config.training;
  const std::int64_t per_dp = p.tp * p.cp * p.pp, dp = p.dp, batch = t.global_batch_size;
  p.zero = 3;
  t.micro_batch_size = 1;
  config.activation_checkpoint.mode = "full";
  for (std::int64_t times = 2; times * dp * per_dp <= kMostRanks; times *= 2) {
    p.dp = times * dp;
    t.global_batch_size = batch % p.dp == 0 ? batch : p.dp;
    t.grad_accum = t.global_batch_size / p.dp;
    const double needed = predict_memory(config, compute_dtype, on_gpu).total();
    if (needed > bytes) continue;
    return {{text(times, " times as many ", on_gpu ? "GPUs" : "hosts like this one", " with parallelism.dp = ", p.dp,
                  ", parallelism.zero = 3, training.micro_batch_size = 1, training.grad_accum = ", t.grad_accum,
                  t.global_batch_size == batch ? "" : text(", training.global_batch_size = ", t.global_batch_size),
                  ", activation_checkpoint.mode = \"full\""),
             needed}};
  }
  return {};
}

}  // namespace

std::vector<FittingChange> nearest_that_fit(const Config& given, const std::string& compute_dtype, bool on_gpu,
                                            double bytes, std::size_t count) try {
  Config config = given;
  config.parallelism.dp = std::max<std::int64_t>(1, config.parallelism.dp);
  std::vector<Candidate> candidates = combinations(config);
  std::ranges::stable_sort(candidates, {}, &Candidate::cost);
  std::vector<FittingChange> found;
  std::vector<std::vector<std::string>> taken;
  for (const Candidate& candidate : candidates) {
    if (found.size() == count) break;
    if (std::ranges::any_of(taken, [&](const auto& other) { return contains_all(candidate.settings, other); }))
      continue;
    const double needed = predict_memory(candidate.config, compute_dtype, on_gpu).total();
    if (needed > bytes) continue;
    found.push_back({joined(candidate.settings), needed});
    taken.push_back(candidate.settings);
  }
  return found.empty() ? with_more_ranks(config, compute_dtype, on_gpu, bytes) : found;
} catch (const ConfigError&) {
  return {};
}

}  // namespace trireme::planner
