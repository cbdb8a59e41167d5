#include "trireme/inference/generate_text.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/text_stream.hpp"

namespace trireme {

std::string prompt_of_line(const std::string& line, const std::string& file, std::size_t number) {
  if (!line.starts_with('{')) return line;
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  require<DataError>(json.is_object() && json.contains("prompt") && json["prompt"].is_string(), file, ":", number,
                     ": begins with { and is no JSON object with a text \"prompt\"");
  return json["prompt"].get<std::string>();
}

std::vector<GeneratedText> generate_texts(InferenceModel& model, const data::Tokenizer& tokenizer,
                                          const std::vector<std::string>& prompts, const GeneratorOptions& options,
                                          const std::vector<std::string>& stop_strings,
                                          const std::function<void(std::size_t, const std::string&)>& on_text,
                                          GenerationSpeed& speed) {
  std::vector<std::vector<data::TokenId>> ids;
  std::vector<data::TextStream> streams;
  for (const std::string& prompt : prompts) {
    ids.push_back(tokenizer.encode(prompt, /*special_tokens=*/true));
    // The text goes on: an end token after the prompt would say that it does not.
    while (!ids.back().empty() && std::ranges::find(options.end_tokens, ids.back().back()) != options.end_tokens.end())
      ids.back().pop_back();
    for (const data::TokenId id : ids.back())
      require<ConfigError>(id < model.config().vocab_size, "the tokenizer ", tokenizer.name(), " has the token ", id,
                           ", the model a vocabulary of ", model.config().vocab_size,
                           "\n  fix: the tokenizer that the model was trained with");
    streams.emplace_back(tokenizer, ids.back(), stop_strings);
  }
  std::vector<GeneratedText> out(prompts.size());
  const auto tell = [&](std::size_t i, const std::string& piece) {
    out[i].text += piece;
    if (!piece.empty() && on_text) on_text(i, piece);
  };
  const std::vector<GeneratedSequence> sequences = generate(
      model, ids, options,
      [&](std::size_t i, data::TokenId token) {
        tell(i, streams[i].add(token));
        return !streams[i].stopped();
      },
      &speed);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    tell(i, streams[i].finish());
    out[i].tokens = sequences[i].tokens;
    out[i].finish = streams[i].stopped() ? Finish::stopped : sequences[i].finish;
  }
  return out;
}

}  // namespace trireme
