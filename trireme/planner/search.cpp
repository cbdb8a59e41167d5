#include "trireme/planner/search.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/describe/counts.hpp"

namespace trireme::planner {
namespace {

constexpr std::int64_t kShortestOfContext = 8192;  // tokens of a rank of cp: shorter parts do not pay
constexpr int kMostMicroBatch = 64, kMostVirtualStages = 8;
/// Layouts whose weights, gradients and states alone are larger than this part of the memory are not looked at closer.
constexpr double kHopeless = 1.1;

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> out;
  for (std::int64_t n = 1; n <= most; n *= 2) out.push_back(n);
  return out;
}

/// Weights, gradients and states of a rank as its config says; 0 where they cannot be told from the sizes alone.
double state_bytes_of(const Config& c, const StepWork& w) {
  if (!c.optimizer.frozen.empty()) return 0;
  PrecisionConfig precision = c.precision;
  precision.param = config::param_dtype(c);
  if (precision.param == "auto") precision.param = w.element_bytes == 4 ? "float32" : "bfloat16";
  const bool stateless = c.optimizer.name == "sgd" && c.optimizer.momentum == 0;
  const auto [dense, experts] = parameters_of_rank(w);
  const std::int64_t shards = static_cast<std::int64_t>(w.dp) * w.cp;
  double sum = 0;
  for (const auto& [elements, ranks] : {std::pair{dense, shards}, std::pair{experts, shards / w.ep}}) {
    const std::vector<config::Bytes> parts =
        config::state_bytes(std::llround(elements), precision, c.optimizer.name, c.parallelism.zero,
                            std::max<std::int64_t>(1, ranks), c.parallelism.contiguous_gradients);
    for (std::size_t i = 0; i < (stateless ? 3 : parts.size()); ++i) sum += parts[i].bytes;
  }
  return sum;
}

struct TimedLayout {
  Config config;
  StepWork work;
  double seconds = 0;
};

/// The layouts of a question, with their times.
class Layouts {
 public:
  explicit Layouts(const PlanQuestion& question) : question_(question) {}

  /// Of all of them.
  std::int64_t count() const { return count_; }
  /// Those that may fit.
  std::vector<TimedLayout> timed() {
    const ModelConfig& m = question_.config.model;
    const std::int64_t gpus = question_.machine.gpus, per_host = question_.machine.per_host();
    for (const std::int64_t tp : powers_of_two(std::min(per_host, m.num_attention_heads)))
      for (const std::int64_t pp : powers_of_two(std::min(gpus / tp, m.num_hidden_layers)))
        for (const std::int64_t cp : powers_of_two(gpus / (tp * pp))) {
          if (gpus % (tp * pp * cp) != 0 || m.num_attention_heads % tp != 0 || per_host % tp != 0) continue;
          if (cp > 1 && question_.config.training.seq_len / cp < kShortestOfContext) continue;
          add_with(tp, pp, cp, gpus / (tp * pp * cp));
        }
    return std::move(found_);
  }

 private:
  void add_with(std::int64_t tp, std::int64_t pp, std::int64_t cp, std::int64_t dp) {
    const std::int64_t batch = question_.config.training.global_batch_size;
    if (batch % dp != 0) return;
    Config c = question_.config;
    ParallelismConfig& p = c.parallelism;
    p.tp = tp;
    p.pp = pp;
    p.cp = cp;
    p.dp = dp;
    p.sequence_parallel = true;
    p.stages.clear();
    p.pp_schedule_file.clear();
    const std::int64_t experts = c.model.num_local_experts;
    for (const std::int64_t ep : powers_of_two(experts > 0 ? std::min(experts, dp * cp * tp) : 1)) {
      if (ep > 1 && (experts % ep != 0 || dp * cp % ep != 0)) continue;
      p.ep = ep;
      for (const std::int64_t micro : powers_of_two(kMostMicroBatch)) {
        if (batch / dp % micro != 0) continue;
        c.training.micro_batch_size = micro;
        c.training.grad_accum = batch / dp / micro;
        for (const std::int64_t zero : {0, 1, 3}) {
          if ((zero == 0) != (dp * cp == 1)) continue;  // one shard is all there is; else ZeRO 1 costs nothing
          if (zero == 3 && pp > 1) continue;            // gathers for each microbatch
          p.zero = zero;
          for (const char* recompute : {"none", "selective", "full"}) {
            c.activation_checkpoint.mode = recompute;
            add_schedules(c);
          }
        }
      }
    }
  }

  void add_schedules(Config& c) {
    ParallelismConfig& p = c.parallelism;
    p.virtual_stages = 1;
    p.pp_schedule = "1f1b";
    add(c);
    if (p.pp == 1) return;
    for (std::int64_t v = 2; v <= kMostVirtualStages && v * p.pp <= c.model.num_hidden_layers; ++v) {
      if (c.training.grad_accum % p.pp != 0) break;  // interleaved in rounds of pp
      p.pp_schedule = "interleaved-1f1b";
      p.virtual_stages = v;
      add(c);
    }
    p.virtual_stages = 1;
    if (2 * p.pp > c.model.num_hidden_layers) return;
    p.pp_schedule = "zbv";
    add(c);
  }

  void add(const Config& c) {
    TimedLayout layout{.config = c, .work = work_of(c)};
    ++count_;
    if (state_bytes_of(c, layout.work) > kHopeless * question_.memory_bytes) return;
    layout.seconds = predict_step(layout.work, question_.machine, question_.software).total();
    found_.push_back(std::move(layout));
  }

  const PlanQuestion& question_;
  std::int64_t count_ = 0;
  std::vector<TimedLayout> found_;
};

auto degrees(const Config& c) {
  const ParallelismConfig& p = c.parallelism;
  return std::tuple(p.dp, p.tp, p.pp, p.cp, p.ep);
}

}  // namespace

double process_bytes(const MemoryPlan& memory) { return 2e9 + 0.04 * memory.total(); }

Plan predict_plan(const Config& config, const Machine& machine, const Software& software) {
  const StepWork work = work_of(config);
  Plan out;
  out.config = config;
  out.time = predict_step(work, machine, software);
  out.tokens_per_second = work.tokens_per_step() / out.time.total();
  out.mfu = mfu(work, out.time, machine);
  out.memory = predict_memory(config, machine.is_cpu() ? "float32" : "bfloat16", !machine.is_cpu());
  out.memory_bytes = out.memory.total() + process_bytes(out.memory);
  return out;
}

FoundPlans find_plans(const PlanQuestion& question, std::size_t count) {
  Layouts every(question);
  std::vector<TimedLayout> layouts = every.timed();
  std::ranges::stable_sort(layouts, {}, &TimedLayout::seconds);
  FoundPlans out;
  out.layouts = every.count();
  std::set<decltype(degrees(question.config))> taken;
  for (const TimedLayout& layout : layouts) {
    if (out.plans.size() == count) break;
    if (taken.contains(degrees(layout.config))) continue;
    Plan plan = predict_plan(layout.config, question.machine, question.software);
    if (plan.memory_bytes > question.memory_bytes) {
      ++out.too_large;
      continue;
    }
    if (question.accepts && !question.accepts(layout.config)) continue;
    taken.insert(degrees(layout.config));
    out.plans.push_back(std::move(plan));
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> settings_of(const Config& c) {
  const ParallelismConfig& p = c.parallelism;
  std::vector<std::pair<std::string, std::string>> out = {
      {"parallelism.dp", text(p.dp)},
      {"parallelism.tp", text(p.tp)},
      {"parallelism.pp", text(p.pp)},
      {"parallelism.cp", text(p.cp)},
      {"parallelism.ep", text(p.ep)},
      {"parallelism.zero", text(p.zero)},
      {"parallelism.sequence_parallel", p.sequence_parallel ? "true" : "false"}};
  if (p.pp > 1) {
    out.emplace_back("parallelism.pp_schedule", p.pp_schedule);
    out.emplace_back("parallelism.virtual_stages", text(p.virtual_stages));
  }
  out.emplace_back("training.micro_batch_size", text(c.training.micro_batch_size));
  out.emplace_back("training.grad_accum", text(c.training.grad_accum));
  out.emplace_back("activation_checkpoint.mode", c.activation_checkpoint.mode);
  return out;
}

std::string layout_text(const Config& c) {
  const ParallelismConfig& p = c.parallelism;
  std::string out;
  for (const auto& [name, degree] : {std::pair{"dp", p.dp}, {"tp", p.tp}, {"pp", p.pp}, {"cp", p.cp}, {"ep", p.ep}})
    if (degree > 1) out += text(out.empty() ? "" : " · ", name, " ", degree);
  if (out.empty()) out = "1 rank";
  if (p.pp > 1)
    out += text(" (", p.pp_schedule, p.virtual_stages > 1 ? text(", ", p.virtual_stages, " stages per rank") : "", ")");
  out += text(" · zero ", p.zero, " · ", c.training.grad_accum,
              c.training.grad_accum == 1 ? " microbatch" : " microbatches", " of ", c.training.micro_batch_size);
  if (c.activation_checkpoint.mode != "none") out += text(" · ", c.activation_checkpoint.mode, " recompute");
  return out;
}

std::string prediction_text(const Plan& plan, const Machine& machine) {
  return text(human_seconds(plan.time.total()), " per step · ", human_count(plan.tokens_per_second / machine.gpus),
              " tokens/s per GPU · MFU ", std::round(1000 * plan.mfu) / 10, " % · ", human_bytes(plan.memory_bytes),
              " of ", human_bytes(machine.gpu.memory_bytes));
}

std::string why_slower(const Plan& plan, const Plan& best) {
  // The part of the step that has grown most.
  std::string name;
  double most = 0;
  const auto parts = plan.time.parts(), others = best.time.parts();
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i].second - others[i].second > most) {
      most = parts[i].second - others[i].second;
      name = parts[i].first;
    }
  if (name.empty()) return "as fast";
  const double slower = plan.time.total() / best.time.total() - 1;
  return text(std::round(1000 * slower) / 10, " % slower: ", name, " ", human_seconds(most), " more per step");
}

}  // namespace trireme::planner
