#include "trireme/config/read/derive.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/choices.hpp"
#include "trireme/config/schema/family.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/lr_schedule.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::config {
namespace {

class Deriver {
 public:
  Deriver(LoadedConfig& loaded, const Started& started) : loaded_(loaded), c_(loaded.config), started_(started) {}

  void run() {
    forget_derived();
    heads();
    vocabulary();
    positions();
    degrees();
    batch();
    pooled_balance();
    sequence_parallel();
    precision();
    c_.parallelism.pp_schedule = schedule::canonical_schedule(c_.parallelism.pp_schedule);
    if (c_.parallelism.expert_tp == 0) set("parallelism.expert_tp", c_.parallelism.expert_tp, c_.parallelism.tp, "tp");
    decay();
    exports();
    for (std::size_t i = 0; i < c_.data.size(); ++i)
      if (c_.data[i].seq_len == 0)
        set(text("data.", i, ".seq_len"), c_.data[i].seq_len, c_.training.seq_len, "training.seq_len");
  }

 private:
  template <class T>
  void set(const std::string& key, T& value, const T& derived, const char* rule) {
    value = derived;
    loaded_.origins[key] = {Origin::Kind::derived, {"", 0, 0, text("derived: ", rule)}};
  }

  /// Resets derived values to their defaults: they may depend on the number of ranks.
  void forget_derived() {
    Config standard;
    for (const DataStage& stage : c_.data) standard.data.emplace_back().sources.resize(stage.sources.size());
    const std::vector<Field> all = fields(c_), defaults = fields(standard);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto origin = loaded_.origins.find(all[i].key);
      if (origin == loaded_.origins.end() || origin->second.kind != Origin::Kind::derived) continue;
      std::visit([&](auto* value) { *value = *std::get<decltype(value)>(defaults[i].value); }, all[i].value);
      loaded_.origins.erase(origin);
    }
  }

  /// A model without a vocabulary has that of its tokenizer; check_model() reports one that cannot be read.
  void vocabulary() {
    ModelConfig& m = c_.model;
    if (m.vocab_size != 0 || m.hidden_size == 0 || c_.tokenizer.path.empty()) return;
    try {
      const std::int64_t tokens = data::Tokenizer::load(c_.tokenizer.path).vocab_size(), multiple = m.vocab_multiple;
      set("model.vocab_size", m.vocab_size, (tokens + multiple - 1) / multiple * multiple,
          multiple > 1 ? text("the tokenizer's ", tokens, ", up to a multiple of vocab_multiple").c_str()
                       : "the tokenizer's");
    } catch (const Error&) {
    }
  }

  /// A new model is as long as its longest sequence; one that exists, by a preset or a folder, says how long it is.
  void positions() {
    ModelConfig& m = c_.model;
    if (m.hidden_size == 0 || loaded_.is_given("model.max_position_embeddings")) return;
    if (!m.preset.empty() || !m.hf.empty()) return;
    std::int64_t longest = c_.training.seq_len;
    for (const DataStage& stage : c_.data) longest = std::max(longest, stage.seq_len);
    set("model.max_position_embeddings", m.max_position_embeddings, longest, "the longest seq_len");
  }

  /// Begin, end and length of the decay: two of them, or fewer, say the rest.
  void decay() {
    LrSchedulerConfig& s = c_.lr_scheduler;
    const LrSchedule::Options lr = lr_options(c_);
    if (s.decay_start_step < 0)
      set("lr_scheduler.decay_start_step", s.decay_start_step, Steps(lr.decay_start),
          s.decay_steps > 0                 ? "decay_end_step - decay_steps, not before the end of the warm-up"
          : lr.decay_start > s.warmup_steps ? "the end of the warm-up"
                                            : "warmup_steps");
    if (s.decay_end_step == 0)
      set("lr_scheduler.decay_end_step", s.decay_end_step, Steps(lr.decay_end),
          lr.decay_end == static_cast<double>(c_.training.steps) ? "training.steps" : "decay_start_step + decay_steps");
    if (s.decay_steps == 0)
      set("lr_scheduler.decay_steps", s.decay_steps,
          lr.decay == LrDecay::inverse_sqrt ? Steps(lr.time_scale)
                                            : Steps(std::max(0.0, lr.decay_end - lr.decay_start)),
          lr.decay == LrDecay::inverse_sqrt ? "decay_start_step" : "decay_end_step - decay_start_step");
  }

  void heads() {
    ModelConfig& m = c_.model;
    if (m.num_key_value_heads == 0)
      set("model.num_key_value_heads", m.num_key_value_heads, m.num_attention_heads, "num_attention_heads");
    if (m.head_dim == 0 && m.num_attention_heads > 0)
      set("model.head_dim", m.head_dim, m.hidden_size / m.num_attention_heads, "hidden_size / num_attention_heads");
    if (const std::int64_t ratio = family_of(m).default_mlp_ratio; m.intermediate_size == 0 && ratio > 0)
      set("model.intermediate_size", m.intermediate_size, ratio * m.hidden_size, text(ratio, " hidden_size").c_str());
    if (m.moe_intermediate_size == 0 && m.num_local_experts > 0)
      set("model.moe_intermediate_size", m.moe_intermediate_size, m.intermediate_size, "intermediate_size");
  }

  /// float64 is for comparing layouts exactly: a single sum in float32 would hide differences.
  void precision() {
    if (!is_float64(c_)) return;
    PrecisionConfig& p = c_.precision;
    const std::pair<const char*, std::string*> keys[] = {{"precision.reduce", &p.reduce},
                                                         {"precision.accumulate", &p.accumulate},
                                                         {"precision.master", &p.master},
                                                         {"precision.states", &p.states}};
    for (const auto& [key, value] : keys)
      if (!loaded_.is_given(key)) set(key, *value, std::string("float64"), "float64 weights");
  }

  /// transformers has no class for a registered family.
  void exports() {
    const FamilyInfo* family = find_family(c_.model.model_type);
    if (family == nullptr || !family->is_registered() || loaded_.is_given("checkpoint.export_hf")) return;
    set("checkpoint.export_hf", c_.checkpoint.export_hf, false,
        text("the family ", family->name, " is registered").c_str());
  }

  void degrees() {
    ParallelismConfig& p = c_.parallelism;
    const std::int64_t replica = ranks_of_a_replica(p);
    if (p.dp == -1 && started_.ranks > 0 && started_.ranks % replica == 0)
      set("parallelism.dp", p.dp, started_.ranks / replica, "ranks / (tp x cp x pp)");
  }

  /// On by itself only where it fits; who asks for it is told that it does not.
  void sequence_parallel() {
    ParallelismConfig& p = c_.parallelism;
    if (!p.sequence_parallel || p.tp <= 1 || p.cp < 1 || loaded_.is_given("parallelism.sequence_parallel")) return;
    const auto fits = [&](std::int64_t length) { return length / p.cp % p.tp == 0; };
    bool all_fit = true;
    if (c_.data.empty()) all_fit = fits(c_.training.seq_len);
    for (const DataStage& stage : c_.data) all_fit &= fits(stage.seq_len > 0 ? stage.seq_len : c_.training.seq_len);
    if (!all_fit)
      set("parallelism.sequence_parallel", p.sequence_parallel, false,
          p.cp > 1 ? "tp does not divide seq_len / cp" : "tp does not divide seq_len");
  }

  /// Derives the missing batch size. An unset dp counts as 1 until the number of ranks is known.
  void batch() {
    TrainingConfig& t = c_.training;
    const std::int64_t dp = std::max<std::int64_t>(1, c_.parallelism.dp);
    const bool from_global = t.global_batch_size > 0;
    if (t.micro_batch_size == 0 && from_global && t.grad_accum > 0)
      set("training.micro_batch_size", t.micro_batch_size, t.global_batch_size / (t.grad_accum * dp),
          "global_batch_size / (grad_accum x dp)");
    else if (t.micro_batch_size == 0)
      set("training.micro_batch_size", t.micro_batch_size, std::int64_t{1}, "one sequence");
    if (t.grad_accum == 0 && from_global)
      set("training.grad_accum", t.grad_accum, t.global_batch_size / (t.micro_batch_size * dp),
          "global_batch_size / (micro_batch_size x dp)");
    else if (t.grad_accum == 0)
      set("training.grad_accum", t.grad_accum, std::int64_t{1}, "one microbatch");
    if (t.global_batch_size == 0)
      set("training.global_batch_size", t.global_batch_size, t.micro_batch_size * t.grad_accum * dp,
          "micro_batch_size x grad_accum x dp");
  }

  /// The samples of all ranks in a microbatch count together: with the number in the config, a run that resumes on a
  /// layout with another one is refused, since its loss would be another.
  void pooled_balance() {
    ModelConfig& m = c_.model;
    if (m.num_local_experts == 0 || m.router_aux_loss_coef == 0 || m.router_aux_loss_samples != 0 ||
        parse_router_balance(m.router_aux_loss_type) != RouterBalance::hf)
      return;
    set("model.router_aux_loss_samples", m.router_aux_loss_samples,
        c_.training.micro_batch_size * std::max<std::int64_t>(1, c_.parallelism.dp), "micro_batch_size x dp");
  }

  LoadedConfig& loaded_;
  Config& c_;
  const Started& started_;
};

}  // namespace

std::string param_dtype(const Config& c) { return c.precision.param == "auto" ? c.model.dtype : c.precision.param; }

bool is_float64(const Config& c) { return c.model.dtype == "float64" || c.precision.param == "float64"; }

std::int64_t ranks_of_a_replica(const ParallelismConfig& p) { return p.tp * p.cp * p.pp; }

void derive(LoadedConfig& loaded, const Started& started) { Deriver(loaded, started).run(); }

}  // namespace trireme::config
