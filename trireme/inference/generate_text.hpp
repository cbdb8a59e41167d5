#pragma once
// Continues texts and answers conversations: prompts to tokens, tokens to text.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/tokenizer/chat.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/inference/generator.hpp"

namespace trireme {

struct GeneratedText {
  std::string text;                   // without the prompt, and without a stop string
  std::vector<data::TokenId> tokens;  // the new ones
  Finish finish = Finish::max_tokens;
};

/// Of a line of a file of prompts: the line, or "prompt" of the JSON object that it is. With `chat` an object may also
/// be a conversation as of `trireme data prepare --chat`, which is returned as it is. DataError names the line.
std::string prompt_of_line(const std::string& line, const std::string& file, std::size_t number, bool chat = false);

/// A prompt for a model of conversations: the JSON of a conversation as it is; else a message of the user, after one of
/// the system if `system` is not empty.
std::string conversation_of(const std::string& prompt, const std::string& system);

/// The tokens of a prompt. Texts get the special tokens that the tokenizer puts around a text, apart from those at its
/// end; conversations (conversation_of()) those of the template, up to the assistant's next turn. ConfigError for a
/// token that the model does not have, DataError for a bad conversation.
std::vector<data::TokenId> prompt_tokens(const ModelConfig& model, const data::Tokenizer& tokenizer,
                                         const std::string& prompt, const std::vector<data::TokenId>& end_tokens,
                                         const std::optional<data::ChatTemplate>& chat = std::nullopt);

/// What ends the assistant's turn of a template: a special token, which is added to `end_tokens`, or else the text of
/// the next turn, which is added to `stop_strings`.
void add_end_of_turn(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer,
                     std::vector<data::TokenId>& end_tokens, std::vector<std::string>& stop_strings);

/// Collective. `on_text`: called with each piece of text that is complete, and the number of its prompt. Adds to
/// `speed`.
std::vector<GeneratedText> generate_texts(InferenceModel& model, const data::Tokenizer& tokenizer,
                                          const std::vector<std::vector<data::TokenId>>& prompts,
                                          const GeneratorOptions& options, const std::vector<std::string>& stop_strings,
                                          const std::function<void(std::size_t, const std::string&)>& on_text,
                                          GenerationSpeed& speed);

}  // namespace trireme
