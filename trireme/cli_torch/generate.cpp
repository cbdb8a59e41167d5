// `trireme generate CHECKPOINT -p PROMPT`
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iostream>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/data/tokenizer/chat_of_model.hpp"
#include "trireme/inference/generate_text.hpp"
#include "trireme/inference/on_ranks.hpp"
#include "trireme/inference/opened_model.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/train/setup/dtypes.hpp"

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
    if (!line.empty()) prompts.push_back(prompt_of_line(line, command.prompts_file, number, command.chat));
  }
  require<DataError>(!prompts.empty(), command.prompts_file, ": no prompt in it\n  fix: one prompt per line");
  return prompts;
}

void print_speed(const GenerationSpeed& speed, std::ostream& err) {
  const auto rate = [](std::int64_t tokens, double seconds) {
    return human_number(std::round(static_cast<double>(tokens) / std::max(seconds, 1e-9) * 10) / 10);
  };
  const std::int64_t after_first = speed.tokens - speed.sequences;  // the first of each comes with its prompt
  err << speed.tokens << " new tokens · " << speed.prompt_tokens
      << (speed.prompt_tokens == 1 ? " prompt token" : " prompt tokens");
  if (after_first > 0) err << " · " << rate(after_first, speed.seconds) << " tokens/s";
  err << " · prompt " << rate(speed.prompt_tokens, speed.prompt_seconds) << " tokens/s" << std::endl;
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

/// Options that change nothing without others.
void note_unused(const GenerateCommand& command, std::ostream& err) {
  if (command.temperature > 0 || (command.top_k == 0 && command.top_p == 1)) return;
  err << "note: " << (command.top_k > 0 ? text("--top-k ", command.top_k) : text("--top-p ", command.top_p))
      << " has no effect at --temperature 0, which always takes the most probable token (--temperature 1 samples)"
      << std::endl;
}

void note_length(const std::vector<GeneratedText>& results, std::size_t first, std::int64_t length, std::ostream& err) {
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i].finish == Finish::max_length)
      err << "note: text " << first + i + 1 << " ends at the model's length of " << length
          << " tokens (max_position_embeddings), after " << results[i].tokens.size() << " new ones" << std::endl;
}

/// ConfigError for a layout that does not divide the model.
void check_layout_of(const ModelConfig& model, const ParallelismConfig& layout) {
  config::LoadedConfig loaded;
  loaded.config.model = model;
  loaded.config.parallelism = layout;
  config::throw_if_any(config::validate_layout(loaded));
}

/// The prompts as tokens, and what ends the answers. All that can be wrong with them is found here.
struct Request {
  std::vector<std::string> shown;  // prompts, for the output
  std::vector<std::vector<data::TokenId>> tokens;
  GeneratorOptions options;
  std::vector<std::string> stop;
};

Request request_of(const GenerateCommand& command, const OpenedModel& model, const data::Tokenizer& tokenizer,
                   const ModelConfig& config, std::ostream& err) {
  Request out{.shown = prompts_of(command),
              .tokens = {},
              .options = {.sampling = {.temperature = command.temperature,
                                       .top_k = command.top_k,
                                       .top_p = command.top_p,
                                       .seed = command.seed},
                          .repetition_penalty = command.repetition_penalty,
                          .max_tokens = command.tokens,
                          .end_tokens = model.end_tokens(tokenizer),
                          .known_tokens = tokenizer.vocab_size(),
                          .cached = !command.no_cache},
              .stop = command.stop};
  std::optional<data::ChatTemplate> chat;
  if (command.chat) {
    data::ChosenTemplate chosen = data::choose_template(model.tokenizer_path(command.tokenizer), tokenizer);
    if (chosen.is_guess)
      err << "warning: the conversation is written in the template " << chosen.chat.name << ": " << chosen.why
          << std::endl;
    chat = std::move(chosen.chat);
    add_end_of_turn(*chat, tokenizer, out.options.end_tokens, out.stop);
  }
  for (const std::string& prompt : out.shown)
    out.tokens.push_back(prompt_tokens(config, tokenizer, chat ? conversation_of(prompt, command.system) : prompt,
                                       out.options.end_tokens, chat));
  check_generation(out.tokens, out.options, config.max_position_embeddings);
  return out;
}

}  // namespace

int run_generate(const GenerateCommand& command, Console& console) {
  require<ConfigError>(!command.prompt.empty() || !command.prompts_file.empty(),
                       "no prompt\n  fix: -p TEXT, or --prompts FILE");
  require<ConfigError>(command.batch >= 1, "--batch ", command.batch, ": must be at least 1");
  require<ConfigError>(command.system.empty() || command.chat,
                       "--system needs --chat\n  fix: add --chat, or leave --system out");
  require<ConfigError>(command.prompts_file != "-" || command.tp * command.pp == 1 || visible_gpus() == 0,
                       "--prompts - with several ranks on GPUs: they are processes without standard input",
                       "\n  fix: --prompts FILE");
  const OpenedModel model = open_trained_model(meant_model(command.checkpoint, console.err));
  const data::Tokenizer tokenizer = model.tokenizer(command.tokenizer);
  const ModelConfig config = model_for_inference(*model.source);
  const ParallelismConfig layout = layout_of(command);
  check_layout_of(config, layout);
  if (command.dtype != "auto") scalar_type(command.dtype);
  const Request request = request_of(command, model, tokenizer, config, console.err);
  const bool streams = request.shown.size() == 1 && !command.json;
  return on_ranks(config, layout, command.words, [&](Mesh& mesh, at::Device device, bool prints) {
    if (prints) note_unused(command, console.err);
    InferenceModel loaded(config, *model.source, mesh, device, dtype_on(device, command.dtype));
    GenerationSpeed speed;
    if (prints && streams && !command.chat) console.out << request.shown[0] << std::flush;
    for (std::size_t begin = 0; begin < request.tokens.size(); begin += static_cast<std::size_t>(command.batch)) {
      const std::size_t end = std::min(request.tokens.size(), begin + static_cast<std::size_t>(command.batch));
      const std::vector<std::vector<data::TokenId>> some(request.tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                                                         request.tokens.begin() + static_cast<std::ptrdiff_t>(end));
      GeneratorOptions own = request.options;  // ranks may be threads
      own.first_sequence = static_cast<std::int64_t>(begin);
      const std::vector<GeneratedText> results = generate_texts(
          loaded, tokenizer, some, own, request.stop,
          [&](std::size_t, const std::string& piece) {
            if (prints && streams) console.out << piece << std::flush;
          },
          speed);
      if (!prints) continue;
      if (streams) console.out << "\n" << std::flush;
      for (std::size_t i = 0; i < results.size() && !streams; ++i) {
        const std::string& shown = request.shown[begin + i];
        console.out << (command.json ? json_line(shown, results[i])
                                     : text(command.chat ? "" : shown, results[i].text, "\n"))
                    << std::endl;
      }
      if (!command.json) note_length(results, begin, config.max_position_embeddings, console.err);
    }
    if (prints) print_speed(speed, console.err);
    return 0;
  });
}

}  // namespace trireme::cli
