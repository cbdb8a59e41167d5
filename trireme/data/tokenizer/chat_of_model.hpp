#pragma once
// The chat template of a model: what its folder says, as far as it is one of the known kinds.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/tokenizer/chat.hpp"

namespace trireme::data {

/// What a model folder says about conversations. All empty if it says nothing.
struct ModelChat {
  std::string file;   // "gpt2/tokenizer_config.json"
  std::string jinja;  // its template
  std::string bos, eos;
};

/// From chat_template.jinja, else from tokenizer_config.json, in the folder of the tokenizer. DataError if a file
/// cannot be read.
ModelChat read_model_chat(const std::filesystem::path& tokenizer_path);

// Note [Known chat templates]: Jinja is a programming language, which is not run here. A template is recognized by its
// tokens: ChatML, Llama 2, Llama 3, Mistral, Gemma, Phi. What differs within a kind is read off the text: white space,
// a default message of the system, a date. tests/peers/chat_templates_agree.py compares them with transformers.
/// nullopt if it is none of the known kinds.
std::optional<ChatTemplate> known_template(const ModelChat& model, const Tokenizer& tokenizer);

struct ChosenTemplate {
  ChatTemplate chat;
  std::string why;  // "that of gpt2/tokenizer_config.json"
  bool is_guess;    // the model's own is not known: worth a warning
};

/// The model's own template; else ChatML if the tokenizer has its tokens; else role prefixes ("plain").
ChosenTemplate choose_template(const std::filesystem::path& tokenizer_path, const Tokenizer& tokenizer);

}  // namespace trireme::data
