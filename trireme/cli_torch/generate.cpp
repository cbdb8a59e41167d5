// `trireme generate CHECKPOINT -p PROMPT`
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iostream>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/inference/generate_text.hpp"
#include "trireme/inference/on_ranks.hpp"
#include "trireme/inference/opened_model.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"

namespace trireme::cli {
namespace {

std::vector<std::string> prompts_of(const GenerateCommand& command) {
  if (command.prompts_file.empty()) return {command.prompt};
  std::ifstream file;
  if (command.prompts_file != "-") {
    file.open(command.prompts_file);
    require<DataError>(file.good(), command.prompts_file, ": ", errno_text(errno));
  }
  std::vector<std::string> prompts;
  std::istream& in = command.prompts_file == "-" ? std::cin : file;
  std::size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty()) prompts.push_back(prompt_of_line(line, command.prompts_file, number));
  }
  require<DataError>(!prompts.empty(), command.prompts_file, ": no text in it\n  fix: one text a line");
  return prompts;
}

void print_speed(const GenerationSpeed& speed, std::ostream& err) {
  const auto rate = [](std::int64_t tokens, double seconds) {
    return human_number(std::round(static_cast<double>(tokens) / std::max(seconds, 1e-9) * 10) / 10);
  };
  const std::int64_t after_first = speed.tokens - speed.sequences;  // the first of each comes with its prompt
  err << speed.tokens << " tokens after " << speed.prompt_tokens << " of prompts";
  if (after_first > 0) err << " · " << rate(after_first, speed.seconds) << " tokens/s";
  err << " · prompts " << rate(speed.prompt_tokens, speed.prompt_seconds) << " tokens/s" << std::endl;
}

std::string json_line(const std::string& prompt, const GeneratedText& result) {
  std::string tokens;
  for (const data::TokenId id : result.tokens) tokens += text(tokens.empty() ? "" : ", ", id);
  return text(R"({"prompt": )", json_string(prompt), R"(, "text": )", json_string(result.text), R"(, "tokens": [)",
              tokens, R"(], "finish": )", json_string(name(result.finish)), "}");
}

ParallelismConfig layout_of(const GenerateCommand& command) {
  require<ConfigError>(command.tp >= 1 && command.pp >= 1, "--tp ", command.tp, " --pp ", command.pp,
                       ": must be at least 1");
  ParallelismConfig layout;
  layout.dp = 1;
  layout.tp = layout.expert_tp = command.tp;
  layout.pp = command.pp;
  return layout;
}

}  // namespace

int run_generate(const GenerateCommand& command, Console& console) {
  require<ConfigError>(!command.prompt.empty() || !command.prompts_file.empty(),
                       "nothing to continue\n  fix: -p TEXT, or --prompts FILE");
  require<ConfigError>(command.batch >= 1, "--batch ", command.batch, ": must be at least 1");
  require<ConfigError>(command.prompts_file != "-" || command.tp * command.pp == 1 || visible_gpus() == 0,
                       "--prompts - with several ranks on GPUs: each is a process, and none has the standard input",
                       "\n  fix: --prompts FILE");
  const OpenedModel model = open_trained_model(meant_model(command.checkpoint));
  const data::Tokenizer tokenizer =
      command.tokenizer.empty() ? model.tokenizer() : data::Tokenizer::load(command.tokenizer);
  const std::vector<std::string> prompts = prompts_of(command);
  const GeneratorOptions options{.sampling = {.temperature = command.temperature,
                                              .top_k = command.top_k,
                                              .top_p = command.top_p,
                                              .seed = command.seed},
                                 .repetition_penalty = command.repetition_penalty,
                                 .max_tokens = command.tokens,
                                 .end_tokens = model.end_tokens(tokenizer),
                                 .known_tokens = tokenizer.vocab_size(),
                                 .cached = !command.no_cache};
  const bool streams = prompts.size() == 1 && !command.json;
  const ModelConfig config = model_for_inference(*model.source);
  return on_ranks(config, layout_of(command), command.words, [&](Mesh& mesh, at::Device device, bool prints) {
    InferenceModel loaded(config, *model.source, mesh, device, dtype_on(device, command.dtype));
    GenerationSpeed speed;
    if (prints && streams) console.out << prompts[0] << std::flush;
    for (std::size_t begin = 0; begin < prompts.size(); begin += static_cast<std::size_t>(command.batch)) {
      const std::size_t end = std::min(prompts.size(), begin + static_cast<std::size_t>(command.batch));
      const std::vector<std::string> some(prompts.begin() + static_cast<std::ptrdiff_t>(begin),
                                          prompts.begin() + static_cast<std::ptrdiff_t>(end));
      GeneratorOptions own = options;  // ranks may be threads
      own.first_sequence = static_cast<std::int64_t>(begin);
      const std::vector<GeneratedText> results = generate_texts(
          loaded, tokenizer, some, own, command.stop,
          [&](std::size_t, const std::string& piece) {
            if (prints && streams) console.out << piece << std::flush;
          },
          speed);
      if (!prints) continue;
      if (streams) console.out << "\n";
      for (std::size_t i = 0; i < results.size() && !streams; ++i)
        console.out << (command.json ? json_line(some[i], results[i]) : text(some[i], results[i].text, "\n"))
                    << std::endl;
    }
    if (prints) print_speed(speed, console.err);
    return 0;
  });
}

}  // namespace trireme::cli
