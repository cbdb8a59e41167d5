#include "trireme/train/run/run_header.hpp"

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/describe/counts.hpp"

namespace trireme {
namespace {

std::string model_line(const ModelConfig& m) {
  const std::string name = !m.preset.empty() ? m.preset : !m.hf.empty() ? m.hf : m.model_type;
  return text(name, " · ", m.num_hidden_layers, " layers · hidden ", m.hidden_size, " · ", m.num_attention_heads,
              " heads · vocab ", thousands(m.vocab_size), " · ", thousands(config::count_parameters(m).total()),
              " parameters", m.tie_word_embeddings ? " (embedding tied)" : "",
              m.init == "random" ? "" : text(" · from ", m.init));
}

std::string batch_line(const Config& c) {
  const TrainingConfig& t = c.training;
  const std::int64_t tokens = t.global_batch_size * t.seq_len;
  return text(t.micro_batch_size, " seq × ", thousands(t.seq_len), " tok × ", t.grad_accum, " accum × dp ",
              c.parallelism.dp, " = ", thousands(tokens), " tokens/step · ", thousands(t.steps),
              t.steps == 1 ? " step = " : " steps = ",
              human_count(static_cast<double>(tokens) * static_cast<double>(t.steps)), " tokens");
}

std::string number_line(const Config& c) {
  const PrecisionConfig& p = c.precision;
  const bool own_master = p.master == p.param;
  return text(p.param, " compute · ", own_master ? "" : text(p.master, " master, "), p.reduce, " reduce, ",
              p.accumulate, " accumulate · ", c.optimizer.name, " ", human_number(c.optimizer.lr), " → ",
              human_number(c.lr_scheduler.decay == "constant" ? c.optimizer.lr : c.lr_scheduler.min_lr), " ",
              c.lr_scheduler.decay, ", ", c.lr_scheduler.warmup_steps, " warm-up",
              c.training.max_norm > 0 ? text(" · clip ", human_number(c.training.max_norm)) : "",
              c.activation_checkpoint.mode == "none" ? "" : text(" · recompute ", c.activation_checkpoint.mode));
}

}  // namespace

std::vector<std::pair<std::string, std::string>> run_header_lines(const Config& config, const RunHeader& facts) {
  std::vector<std::pair<std::string, std::string>> lines{{"run", text(facts.program, " · ", facts.layout)},
                                                         {"model", model_line(config.model)},
                                                         {"data", facts.data},
                                                         {"batch", batch_line(config)}};
  if (!facts.stages.empty()) lines.emplace_back("stages", facts.stages);
  lines.insert(lines.end(), {{"precision", number_line(config)}, {"memory", facts.memory}});
  if (!facts.speed.empty()) lines.emplace_back("speed", facts.speed);
  lines.emplace_back("output", facts.output);
  return lines;
}

}  // namespace trireme
