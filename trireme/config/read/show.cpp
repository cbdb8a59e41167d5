#include "trireme/config/read/show.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/config/read/reference.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/translate/aliases.hpp"
#include "trireme/describe/counts.hpp"

namespace trireme::config {
namespace {

/// Prints keys table by table: "[parallelism]", "[[data]]" and its "[[data.sources]]".
class Printer {
 public:
  void add(const Field& field, const std::string& note, const std::string& meaning = "") {
    const std::size_t dot = field.key.rfind('.');
    open(field.key.substr(0, dot));
    if (!meaning.empty()) out_ += "# " + meaning + "\n";
    std::string line = text(field.key.substr(dot + 1), " = ", toml_text(field.value));
    if (!note.empty()) {
      line.resize(std::max<std::size_t>(line.size() + 2, 44), ' ');
      line += "# " + shortened(note, 200);
    }
    out_ += line + "\n";
  }
  std::string take() && { return std::move(out_); }

 private:
  void open(const std::string& table) {
    if (table == last_) return;
    // A source belongs to the most recently opened stage, so its stage is opened first even if it has no key to print.
    if (const std::size_t sources = table.find(".sources."); sources != std::string::npos)
      if (const std::string stage = table.substr(0, sources); !last_.starts_with(stage + ".")) open(stage);
    last_ = table;
    std::string words;
    bool is_list = false;
    for (std::size_t begin = 0; begin < table.size();) {
      const std::size_t end = std::min(table.find('.', begin), table.size());
      const std::string word = table.substr(begin, end - begin);
      const bool is_index = word.find_first_not_of("0123456789") == std::string::npos;
      if (!is_index) words += (words.empty() ? "" : ".") + word;
      is_list = is_index;
      begin = end + 1;
    }
    out_ += text(out_.empty() ? "" : "\n", is_list ? "[[" : "[", words, is_list ? "]]\n" : "]\n");
  }

  std::string out_, last_;
};

std::string percent(double part) {
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.1f%%", 100 * part);
  return buffer.data();
}

std::string flops_text(double flops) {
  const bool giga = flops >= 1e9;
  std::array<char, 32> buffer{};
  std::snprintf(buffer.data(), buffer.size(), "%.2f %s", flops / (giga ? 1e9 : 1e6), giga ? "GFLOP" : "MFLOP");
  return buffer.data();
}

std::string components(const std::vector<Bytes>& parts) {
  std::string out = human_bytes(sum(parts)) + ":";
  for (const Bytes& part : parts)
    if (part.bytes > 0) out += text(out.ends_with(':') ? " " : " · ", part.name, " ", human_bytes(part.bytes));
  return out;
}

}  // namespace

std::string show(LoadedConfig& loaded, bool explained) {
  Printer printer;
  for (const Field& field : fields(loaded.config)) {
    const auto origin = loaded.origins.find(field.key);
    std::string note = origin == loaded.origins.end() ? "default" : str(origin->second.place);
    for (const Framework framework : {Framework::nanotron, Framework::torchtitan})
      if (const std::string other = foreign_name(field.key, framework); !other.empty())
        note += text(" | ", name(framework), " ", other);
    printer.add(field, note, explained ? meaning_of(field) : "");
  }
  return std::move(printer).take();
}

std::string show_json(LoadedConfig& loaded) {
  std::string out = "{";
  for (const Field& field : fields(loaded.config)) {
    const auto origin = loaded.origins.find(field.key);
    const std::string from = origin == loaded.origins.end() ? "default" : str(origin->second.place);
    const std::string value = std::holds_alternative<std::string*>(field.value)
                                  ? json_string(*std::get<std::string*>(field.value))
                                  : toml_text(field.value);  // numbers, booleans and lists of them are JSON, too
    out += text(out.size() > 1 ? "," : "", "\n  ", json_string(field.key), ": {\"value\": ", value,
                ", \"from\": ", json_string(from), "}");
  }
  return out + "\n}\n";
}

std::string to_toml(LoadedConfig& loaded) {
  using Kind = Origin::Kind;
  Printer printer;
  for (const Field& field : fields(loaded.config)) {
    const auto origin = loaded.origins.find(field.key);
    if (origin != loaded.origins.end() && (origin->second.kind == Kind::file || origin->second.kind == Kind::flag))
      printer.add(field, "");
  }
  return std::move(printer).take();
}

std::string describe_model(const LoadedConfig& loaded) {
  const Config& c = loaded.config;
  const ModelConfig& m = c.model;
  if (m.hidden_size == 0 || m.num_attention_heads == 0 || m.num_key_value_heads == 0 || m.vocab_size == 0) return "";
  if (!is_countable(m)) return "";
  const std::int64_t seq_len = c.training.seq_len;
  const ParameterCounts n = count_parameters(m);

  std::string out = text("model        ", m.preset.empty() ? m.model_type : m.preset, " · ", m.num_hidden_layers,
                         " layers · hidden ", m.hidden_size, " · ", m.num_attention_heads, " heads (",
                         m.num_key_value_heads, " key-value) · vocab ", thousands(m.vocab_size), "\n");
  out += text("parameters   ", thousands(n.total()), m.tie_word_embeddings ? " (embedding tied)" : "", ": embedding ",
              thousands(n.embedding), n.positions ? " · positions " + thousands(n.positions) : "",
              n.own ? " · layers " + thousands(n.own)
                    : text(" · attention ", thousands(n.attention), " · mlp ", thousands(n.mlp)),
              n.router ? " · router " + thousands(n.router) : "", " · norms ", thousands(n.norms),
              n.head ? " · head " + thousands(n.head) : "", "\n");
  if (m.num_local_experts > 0)
    out += text("active       ", thousands(active_parameters(m)), " parameters a token (", m.num_experts_per_tok,
                " of ", m.num_local_experts, " experts)\n");

  const double causal = model_flops_per_token(m, seq_len, CountedScores::causal),
               full = model_flops_per_token(m, seq_len, CountedScores::full);
  out += text("FLOPs        ", flops_text(causal), " a token, forward and backward, causal attention at ",
              thousands(seq_len), " tokens; ", flops_text(full), " with full attention (6 N + 12 L h s)\n");

  PrecisionConfig precision = c.precision;
  const bool assumed = precision.param == "auto" && m.dtype == "auto";  // it depends on the device
  if (precision.param == "auto") precision.param = assumed ? "bfloat16" : m.dtype;
  const std::int64_t shards = std::max<std::int64_t>(1, c.parallelism.dp / c.parallelism.replicate) * c.parallelism.cp;
  out += text("states       ",
              components(state_bytes(n.total(), precision, c.optimizer.name, c.parallelism.zero, shards,
                                     c.parallelism.contiguous_gradients)),
              " (", precision.param, " weights", assumed ? ", where the device multiplies it natively" : "",
              shards > 1 ? text(", zero ", c.parallelism.zero, " over ", shards) : "", "; before tp and pp)\n");

  const ActivationShape shape{.seq_len = seq_len,
                              .micro_batch_size = c.training.micro_batch_size,
                              .tp = c.parallelism.tp,
                              .cp = c.parallelism.cp,
                              .sequence_parallel = c.parallelism.sequence_parallel,
                              .bytes_an_element = dtype_bytes(precision.param)};
  out += text("activations  a layer and microbatch (", shape.micro_batch_size, " × ", thousands(seq_len), " tokens) ",
              components(layer_activation_bytes(m, shape, recompute_of(c.activation_checkpoint.mode))), "\n");
  out += text("logits       ", human_bytes(logits_bytes(m, shape)), " a microbatch (if held at once)\n");

  ActivationShape scores = shape;
  scores.flash_attention = false;
  const double none = sum(layer_activation_bytes(m, scores, Recompute::none));
  out += text(
      "recompute    selective: ", percent(1 - sum(layer_activation_bytes(m, scores, Recompute::selective)) / none),
      " fewer activation bytes than with stored scores, ",
      percent(recompute_flops_per_token(m, seq_len, CountedScores::full, Recompute::selective) / full), " more FLOPs (",
      percent(published_selective_flops_per_token(m, seq_len) / full),
      " as published); full: ", percent(1 - sum(layer_activation_bytes(m, scores, Recompute::full)) / none), " fewer, ",
      percent(recompute_flops_per_token(m, seq_len, CountedScores::full, Recompute::full) / full), " more\n");
  return out;
}

}  // namespace trireme::config
