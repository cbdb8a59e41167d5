#include "trireme/config/validate.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>

#include "trireme/base/error.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme {
namespace {

std::string set_of(const std::vector<std::int64_t>& values) {
  std::string out = "{";
  for (const std::int64_t value : values) out += text(out.size() > 1 ? ", " : "", value);
  return out + "}";
}

/// The divisors of n that `allowed` lets through, ascending; the first 12 of them.
std::vector<std::int64_t> divisors(std::int64_t n, const std::function<bool(std::int64_t)>& allowed) {
  std::vector<std::int64_t> out;
  for (std::int64_t d = 1; d <= n && out.size() < 12; ++d)
    if (n % d == 0 && allowed(d)) out.push_back(d);
  return out;
}

bool one_divides_the_other(std::int64_t a, std::int64_t b) { return a % b == 0 || b % a == 0; }

class Validator {
 public:
  Validator(const LoadedConfig& loaded, const Started& started, std::vector<std::string>& warnings)
      : loaded_(loaded),
        c_(loaded.config),
        m_(c_.model),
        p_(c_.parallelism),
        t_(c_.training),
        started_(started),
        warnings_(warnings),
        violations_(loaded.violations) {}

  std::vector<Violation> run() {
    const bool sizes = model_sizes();
    if (sizes) {
      heads();
      experts();
      stages();
      positions();
    }
    if (sizes) tensor_parallel();
    ranks();
    batch();
    sequence();
    layout();
    optimizer();
    data();
    notes();
    return std::move(violations_);
  }

 private:
  void violation(const std::string& key, std::string headline, std::string detail = "", std::string fix = "") {
    Violation v;
    v.headline = std::move(headline);
    v.place = loaded_.place_of(key);
    v.detail = std::move(detail);
    v.fix = std::move(fix);
    violations_.push_back(std::move(v));
  }
  template <class... Parts>
  void warn(const Parts&... parts) {
    warnings_.push_back(text(parts...));
  }
  std::int64_t dp() const { return std::max<std::int64_t>(1, p_.dp); }

  // --- model
  // -------------------------------------------------------------------------------------------------------------------

  bool model_sizes() {
    const std::vector<std::pair<const char*, std::int64_t>> sizes = {{"hidden_size", m_.hidden_size},
                                                                     {"num_hidden_layers", m_.num_hidden_layers},
                                                                     {"num_attention_heads", m_.num_attention_heads},
                                                                     {"intermediate_size", m_.intermediate_size},
                                                                     {"vocab_size", m_.vocab_size}};
    if (std::ranges::all_of(sizes, [](const auto& s) { return s.second == 0; })) {
      violation("model.preset", "no model: [model] has no preset, no hf and no sizes", "",
                "set model.preset, for instance \"tiny-llama\", or the sizes themselves");
      return false;
    }
    bool all = true;
    for (const auto& [key, value] : sizes) {
      if (value > 0) continue;
      all = false;
      violation(text("model.", key), text("model.", key, " is not given"), "", "set it, or begin from a model.preset");
    }
    return all;
  }

  void heads() {
    if (!loaded_.is_given("model.head_dim") || loaded_.origins.at("model.head_dim").kind == Origin::Kind::derived)
      if (m_.hidden_size % m_.num_attention_heads != 0)
        violation("model.num_attention_heads",
                  text("hidden_size = ", m_.hidden_size,
                       " is not divisible by num_attention_heads = ", m_.num_attention_heads),
                  "the width of a head must be whole", "change one of them, or set head_dim");
    if (m_.num_attention_heads % m_.num_key_value_heads != 0)
      violation("model.num_key_value_heads",
                text("num_attention_heads = ", m_.num_attention_heads,
                     " is not divisible by num_key_value_heads = ", m_.num_key_value_heads),
                "each key-value head serves the same number of query heads");
    if (m_.head_dim % 2 != 0 && m_.model_type != "gpt2")
      violation("model.head_dim", text("head_dim = ", m_.head_dim, " is odd"), "RoPE turns pairs of elements");
  }

  void experts() {
    const std::int64_t experts = m_.num_local_experts;
    if (experts == 0) {
      if (p_.ep > 1)
        violation("parallelism.ep", text("parallelism.ep = ", p_.ep, ", but the model has no experts"), "",
                  "set ep = 1");
      return;
    }
    if (m_.num_experts_per_tok > experts)
      violation("model.num_experts_per_tok",
                text("num_experts_per_tok = ", m_.num_experts_per_tok, " of num_local_experts = ", experts));
    if (experts % p_.ep != 0)
      violation("parallelism.ep",
                text("num_local_experts = ", experts, " is not divisible by parallelism.ep = ", p_.ep),
                text("experts per rank must be whole: ep ∈ ", set_of(divisors(experts, [](auto) { return true; }))));
  }

  void positions() {
    if (m_.model_type == "gpt2" && t_.seq_len > m_.max_position_embeddings)
      violation(
          "training.seq_len",
          text("seq_len = ", t_.seq_len, " is longer than max_position_embeddings = ", m_.max_position_embeddings),
          "learned positions end there", "raise model.max_position_embeddings or shorten seq_len");
    else if (t_.seq_len > m_.max_position_embeddings)
      warn("seq_len = ", t_.seq_len, " is longer than max_position_embeddings = ", m_.max_position_embeddings,
           ": the model was not made for such positions");
  }

  // --- parallelism
  // ---------------------------------------------------------------------------------------------------------------

  void tensor_parallel() {
    const std::int64_t tp = p_.tp, heads = m_.num_attention_heads, kv = m_.num_key_value_heads;
    if (heads % tp != 0)
      violation("model.num_attention_heads",
                text("num_attention_heads = ", heads, " is not divisible by parallelism.tp = ", tp),
                text("heads per rank must be whole: tp ∈ ", set_of(divisors(heads, [](auto) { return true; }))));
    if (!one_divides_the_other(tp, kv))
      violation("model.num_key_value_heads",
                text("num_key_value_heads = ", kv, " and parallelism.tp = ", tp, ": neither divides the other"),
                text("tp ∈ ", set_of(divisors(heads, [&](auto d) { return one_divides_the_other(d, kv); }))));
    else if (tp > kv && heads % tp == 0)
      warn("tp = ", tp, " is more than num_key_value_heads = ", kv, ": each key-value head is kept by ", tp / kv,
           " ranks");
    if (m_.num_local_experts == 0 && m_.intermediate_size % tp != 0)
      violation("model.intermediate_size",
                text("intermediate_size = ", m_.intermediate_size, " is not divisible by parallelism.tp = ", tp),
                "columns per rank must be whole");
    if (m_.num_local_experts > 0 && p_.expert_tp > 0 && m_.moe_intermediate_size % p_.expert_tp != 0)
      violation(
          "model.moe_intermediate_size",
          text("moe_intermediate_size = ", m_.moe_intermediate_size, " is not divisible by expert_tp = ", p_.expert_tp),
          "columns per rank must be whole");
  }

  void stages() {
    const std::int64_t per_rank = chunks_per_rank(p_.pp_schedule, static_cast<int>(p_.virtual_stages));
    const std::int64_t chunks = p_.pp * per_rank;
    if (p_.virtual_stages > 1 && p_.pp_schedule != "interleaved-1f1b")
      violation("parallelism.virtual_stages",
                text("virtual_stages = ", p_.virtual_stages, " with pp_schedule = \"", p_.pp_schedule, "\""),
                "only interleaved-1f1b takes a number of chunks",
                "set pp_schedule = \"interleaved-1f1b\" or virtual_stages = 1");
    if (p_.pp > 1 && chunks > m_.num_hidden_layers)
      violation("parallelism.pp",
                text("num_hidden_layers = ", m_.num_hidden_layers, " for ", chunks, " pipeline chunks (pp ", p_.pp,
                     " × ", per_rank, ")"),
                "each chunk needs a layer", "lower pp or virtual_stages");
    if (p_.stages.empty()) return;
    const std::int64_t sum = std::accumulate(p_.stages.begin(), p_.stages.end(), std::int64_t{0});
    if (static_cast<std::int64_t>(p_.stages.size()) != chunks)
      violation("parallelism.stages", text("stages lists ", p_.stages.size(), " chunks, the pipeline has ", chunks),
                text("pp ", p_.pp, " × ", per_rank, " chunks a rank"));
    else if (sum != m_.num_hidden_layers)
      violation("parallelism.stages", text("stages adds up to ", sum, " layers, the model has ", m_.num_hidden_layers));
  }

  void ranks() {
    const std::int64_t replica = ranks_of_a_replica(p_);
    if (p_.dp == 0) {
      violation("parallelism.dp", "parallelism.dp = 0", "", "at least 1, or -1: whatever is left");
      return;
    }
    if (started_.ranks <= 0) return;
    Violation v;
    v.place = first_given({"parallelism.dp", "parallelism.tp", "parallelism.pp", "parallelism.cp"});
    v.launch = started_.how;
    if (p_.dp == -1) {
      if (started_.ranks % replica == 0) return;
      v.headline = text("one replica of the model needs ", replica, " ranks, ", started_.ranks, " were started");
      v.detail = text("[parallelism]  tp=", p_.tp, " pp=", p_.pp, " cp=", p_.cp, "          ", p_.tp, " × ", p_.pp,
                      " × ", p_.cp, " = ", replica);
      v.fix = text("start a multiple of ", replica, " ranks, or lower tp, pp or cp");
    } else {
      const std::int64_t needed = p_.dp * replica;
      if (needed == started_.ranks) return;
      v.headline = text("the layout needs ", needed, " ranks, ", started_.ranks, started_.ranks == 1 ? " was" : " were",
                        " started");
      v.detail = text("[parallelism]  dp=", p_.dp, " tp=", p_.tp, " pp=", p_.pp, " cp=", p_.cp, "          ", p_.dp,
                      " × ", p_.tp, " × ", p_.pp, " × ", p_.cp, " = ", needed);
      v.fix = text("start ", needed, " ranks, or ",
                   started_.ranks % replica == 0
                       ? text("set dp = ", started_.ranks / replica, " (or dp = -1: whatever is left)")
                       : text("lower tp, pp or cp: one replica takes ", replica));
    }
    violations_.push_back(std::move(v));
  }

  Place first_given(const std::vector<std::string>& keys) const {
    Place best = loaded_.place_of(keys.front());
    for (const std::string& key : keys) {
      const Place place = loaded_.place_of(key);
      if (!place.file.empty() && (best.file.empty() || place.line < best.line)) best = place;
    }
    return best;
  }

  void layout() {
    if (p_.replicate > 1 && p_.dp > 0 && p_.dp % p_.replicate != 0)
      violation("parallelism.replicate",
                text("parallelism.dp = ", p_.dp, " is not divisible by replicate = ", p_.replicate),
                "dp = replicate × shard");
    if (p_.zero_unit != "layer" && p_.zero_unit != "model" &&
        (p_.zero_unit.empty() || p_.zero_unit.size() > 6 ||
         p_.zero_unit.find_first_not_of("0123456789") != std::string::npos ||
         p_.zero_unit.find_first_not_of('0') == std::string::npos))
      violation("parallelism.zero_unit", text("zero_unit = \"", p_.zero_unit, "\""),
                "\"layer\", \"model\" or a number of layers");
    // Grid knows what an order and an expert view may be; the world is kept small where only the words matter.
    const bool small = dp() * ranks_of_a_replica(p_) <= Grid::kMaxRanks && p_.dp != 0;
    if (!small) {
      if (p_.dp != 0) violation("parallelism.dp", text("dp × tp × pp × cp is more than ", Grid::kMaxRanks, " ranks"));
      return;
    }
    try {
      const Grid grid =
          Grid::dense({.pp = narrow(p_.pp), .dp = narrow(dp()), .cp = narrow(p_.cp), .tp = narrow(p_.tp)}, p_.order);
      if (p_.ep > 1 && p_.dp > 0) expert_view(grid, narrow(p_.ep), narrow(p_.expert_tp));
    } catch (const ConfigError& e) {
      const std::string what = e.what();
      violation(what.find("order") != std::string::npos ? "parallelism.order" : "parallelism.ep", what);
    }
  }
  static int narrow(std::int64_t degree) { return static_cast<int>(degree); }

  // --- batch and sequence
  // --------------------------------------------------------------------------------------------------------

  void batch() {
    if (p_.dp == 0) return;
    const bool derived_accum = is_derived("training.grad_accum"),
               derived_micro = is_derived("training.micro_batch_size");
    const std::int64_t product = t_.micro_batch_size * t_.grad_accum * dp();
    if (product == t_.global_batch_size && product > 0) return;
    const auto factor = [](const char* name, std::int64_t value, bool derived) {
      return derived ? std::string(name) : text(name, " ", value);
    };
    const std::string headline = text("global_batch_size = ", t_.global_batch_size, " ≠ ",
                                      factor("micro_batch_size", t_.micro_batch_size, derived_micro), " × ",
                                      factor("grad_accum", t_.grad_accum, derived_accum), " × dp ", dp());
    const std::int64_t unit = dp() * (derived_accum ? t_.micro_batch_size : derived_micro ? t_.grad_accum : 0);
    std::string hint = text(product, " by the right side: leave one of the three out");
    if (unit > 0) {
      const char* open = derived_accum ? "grad_accum" : "micro_batch_size";
      const std::int64_t below = t_.global_batch_size / unit;
      hint = below == 0 ? text("at least ", unit, " (", open, " 1)")
                        : text("nearest: ", below * unit, " (", open, " ", below, ") or ", (below + 1) * unit, " (",
                               open, " ", below + 1, ")");
    }
    violation("training.global_batch_size", headline, hint);
  }

  bool is_derived(const std::string& key) const {
    const auto it = loaded_.origins.find(key);
    return it != loaded_.origins.end() && it->second.kind == Origin::Kind::derived;
  }

  void sequence() {
    check_length("training.seq_len", t_.seq_len);
    for (std::size_t i = 0; i < c_.data.size(); ++i)
      if (c_.data[i].seq_len != t_.seq_len) check_length(text("data.", i, ".seq_len"), c_.data[i].seq_len);
    if (p_.cp > 1 && p_.cp_method == "ulysses" && p_.tp > 0 && m_.num_attention_heads % (p_.tp * p_.cp) != 0)
      violation(
          "parallelism.cp",
          text("num_attention_heads = ", m_.num_attention_heads, " is not divisible by tp ", p_.tp, " × cp ", p_.cp),
          "ulysses cuts heads over cp too", "set cp_method = \"ring\"");
    if (p_.cp > 1 && m_.attention_dropout > 0)
      violation("parallelism.cp", text("attention_dropout = ", m_.attention_dropout, " with cp = ", p_.cp),
                "attention over a ring cannot drop weights", "set model.attention_dropout = 0");
  }

  void check_length(const std::string& key, std::int64_t length) {
    const bool zigzag = p_.cp_method == "ring";
    const std::int64_t parts = zigzag ? 2 * p_.cp : p_.cp;
    if (p_.cp > 1 && length % parts != 0) {
      violation(key, text("seq_len = ", length, " is not divisible by ", zigzag ? "2 × cp = " : "cp = ", parts),
                zigzag ? "the zig-zag split cuts a sequence into 2 × cp parts" : "each cp rank takes one part",
                text("nearest: ", length / parts * parts, " or ", (length / parts + 1) * parts));
    } else if (p_.sequence_parallel && p_.tp > 1 && length / p_.cp % p_.tp != 0) {
      violation(key,
                text("seq_len = ", length, p_.cp > 1 ? text(" / cp ", p_.cp) : "",
                     " is not divisible by parallelism.tp = ", p_.tp),
                "sequence parallel cuts it over tp", "change seq_len, or set sequence_parallel = false");
    }
  }

  // --- the rest
  // ----------------------------------------------------------------------------------------------------------------------

  void optimizer() {
    if (c_.optimizer.betas.size() != 2 || std::ranges::any_of(c_.optimizer.betas, [](double b) { return b >= 1; }))
      violation("optimizer.betas", text("optimizer.betas has ", c_.optimizer.betas.size(), " values"),
                "two numbers, each at least 0 and below 1");
    if (c_.lr_scheduler.min_lr > c_.optimizer.lr)
      violation("lr_scheduler.min_lr",
                text("min_lr = ", c_.lr_scheduler.min_lr, " is above optimizer.lr = ", c_.optimizer.lr),
                "the learning rate decays to it");
    if (c_.lr_scheduler.warmup_steps > t_.steps)
      warn("warmup_steps = ", c_.lr_scheduler.warmup_steps, " is more than steps = ", t_.steps,
           ": the learning rate never reaches its peak");
  }

  void data() {
    for (std::size_t i = 0; i < c_.data.size(); ++i) {
      const std::string stage = text("data.", i);
      const std::int64_t start = c_.data[i].start_step;
      if (i == 0 && start != 1)
        violation(stage + ".start_step", text("the first data stage starts at step ", start),
                  "steps are counted from 1", "set start_step = 1");
      if (i > 0 && start <= c_.data[i - 1].start_step)
        violation(stage + ".start_step",
                  text("data stage ", i, " starts at step ", start, ", stage ", i - 1, " at step ",
                       c_.data[i - 1].start_step),
                  "stages follow one another", "raise start_step");
      if (c_.data[i].sources.empty())
        violation(stage + ".start_step", text("data stage ", i, " has no sources"), "",
                  "sources = [ { path = \"...\" } ], or path = \"synthetic\"");
      for (std::size_t j = 0; j < c_.data[i].sources.size(); ++j)
        if (c_.data[i].sources[j].path.empty())
          violation(text(stage, ".sources.", j, ".weight"), text("source ", j, " of data stage ", i, " has no path"));
    }
  }

  void notes() {
    if (p_.dp > 512) warn("dp = ", p_.dp, " is more than 512: rings get long, and their latency shows");
    if (started_.ranks_of_a_host > 0 && p_.tp > started_.ranks_of_a_host)
      warn("tp = ", p_.tp, " is wider than one host (", started_.ranks_of_a_host,
           " ranks): its all-reduces leave the fast links");
    if (loaded_.is_given("loss_scale.initial") && c_.model.dtype != "float16" && c_.precision.param != "float16")
      warn("[loss_scale] is for float16; this run does not use it");
    if (violations_.empty() && p_.pp > 1 && t_.grad_accum < p_.pp) {
      const Replay r = replay(
          make_schedule(p_.pp_schedule, narrow(p_.pp), static_cast<int>(t_.grad_accum), narrow(p_.virtual_stages)));
      char percent[32];
      std::snprintf(percent, sizeof percent, "%.0f", 100 * r.bubble_fraction);
      warn(t_.grad_accum, " microbatches for ", p_.pp, " stages: the bubble of ", p_.pp_schedule, " is ", percent,
           "% of the work (raise grad_accum)");
    }
  }

  const LoadedConfig& loaded_;
  const Config& c_;
  const ModelConfig& m_;
  const ParallelismConfig& p_;
  const TrainingConfig& t_;
  const Started& started_;
  std::vector<std::string>& warnings_;
  std::vector<Violation> violations_;
};

}  // namespace

std::vector<Violation> validate(const LoadedConfig& loaded, const Started& started,
                                std::vector<std::string>& warnings) {
  return Validator(loaded, started, warnings).run();
}

std::vector<std::string> check_config(LoadedConfig& loaded, const Started& started) {
  derive(loaded, started);
  std::vector<std::string> warnings;
  throw_if_any(validate(loaded, started, warnings));
  return warnings;
}

}  // namespace trireme
