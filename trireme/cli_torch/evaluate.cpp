// `trireme evaluate CHECKPOINT --data FILE`
#include "trireme/inference/evaluate.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/inference/inference_model.hpp"
#include "trireme/inference/on_ranks.hpp"
#include "trireme/inference/opened_model.hpp"

namespace trireme::cli {
namespace {

ParallelismConfig evaluation_layout(const EvaluateCommand& command) {
  ParallelismConfig layout;
  layout.dp = command.dp;
  layout.tp = command.tp;
  layout.pp = command.pp;
  layout.cp = command.cp;
  layout.zero = command.zero;
  layout.sequence_parallel = false;
  return layout;
}

}  // namespace

int run_evaluate(const EvaluateCommand& command, Console& console) {
  for (const auto& [option, value, least] : {std::tuple{"--seq-len", command.seq_len, 0},
                                             {"--samples", command.samples, 0},
                                             {"--micro-batch-size", command.micro_batch_size, 1}})
    require<ConfigError>(value >= least, option, " ", value, ": must be at least ", least,
                         "\n  fix: leave it out for the default");
  const OpenedModel model = open_trained_model(meant_model(command.checkpoint, console.err));
  const std::int64_t longest = std::min<std::int64_t>(1024, model.source->model().max_position_embeddings);
  const EvaluationData data{.files = command.files,
                            .seq_len = command.seq_len > 0   ? command.seq_len
                                       : model.seq_len() > 0 ? model.seq_len()
                                                             : longest,
                            .samples = command.samples,
                            .micro_batch_size = command.micro_batch_size,
                            .scopes = model.data_scopes(),
                            .tokenizer = model.tokenizer_path(command.tokenizer)};
  if (const std::int64_t most = model.source->model().max_position_embeddings; data.seq_len > most)
    console.err << "warning: --seq-len " << data.seq_len << " is above the model's max_position_embeddings = " << most
                << std::endl;
  if (data.tokenizer.empty())
    console.err << "note: " << model.path.string()
                << " has no tokenizer: whether it made the token files is not known (-t TOKENIZER)" << std::endl;
  else
    static_cast<void>(model.tokenizer(command.tokenizer));  // it is the model's
  const Config config = evaluation_config(model_for_inference(*model.source), model.path.string(), data,
                                          evaluation_layout(command), command.dtype);
  return on_ranks(config.model, config.parallelism, command.words, [&](Mesh& mesh, at::Device device, bool prints) {
    const Stopwatch time;
    const Evaluation result = evaluate(config, mesh, device);
    if (!prints) return 0;
    const double seconds = time.seconds();
    if (command.json) {
      console.out << R"({"loss": )" << json_number(result.loss) << R"(, "perplexity": )"
                  << json_number(std::exp(result.loss)) << R"(, "tokens": )" << result.tokens << R"(, "samples": )"
                  << result.samples << R"(, "seq_len": )" << data.seq_len << "}\n";
    } else {
      console.out << "model       " << model.path.string() << " on " << mesh.grid().str() << "\n"
                  << "data        " << thousands(result.tokens) << " tokens in " << thousands(result.samples)
                  << " samples of " << thousands(data.seq_len) << "\n"
                  << "loss        " << human_number(result.loss) << " nats per token\n"
                  << "perplexity  " << human_number(std::exp(result.loss)) << "\n"
                  << "time        " << human_number(std::round(seconds * 100) / 100) << " s with loading\n";
    }
    return 0;
  });
}

}  // namespace trireme::cli
