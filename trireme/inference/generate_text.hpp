#pragma once
// Continues texts: prompts to tokens, tokens to text.
#include <functional>
#include <string>
#include <vector>

#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/inference/generator.hpp"

namespace trireme {

struct GeneratedText {
  std::string text;                   // without the prompt, and without a stop string
  std::vector<data::TokenId> tokens;  // the new ones
  Finish finish = Finish::max_tokens;
};

/// Of a line of a file of prompts: the line, or "prompt" of the JSON object that it is. DataError names the line.
std::string prompt_of_line(const std::string& line, const std::string& file, std::size_t number);

/// Collective. Prompts get the special tokens that the tokenizer puts around a text, apart from those at its end.
/// `on_text`: called with each piece of text that is complete, and the number of its prompt. Adds to `speed`.
std::vector<GeneratedText> generate_texts(InferenceModel& model, const data::Tokenizer& tokenizer,
                                          const std::vector<std::string>& prompts, const GeneratorOptions& options,
                                          const std::vector<std::string>& stop_strings,
                                          const std::function<void(std::size_t, const std::string&)>& on_text,
                                          GenerationSpeed& speed);

}  // namespace trireme
