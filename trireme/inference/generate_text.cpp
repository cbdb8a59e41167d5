#include "trireme/inference/generate_text.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/json_field.hpp"
#include "trireme/data/tokenizer/text_stream.hpp"

namespace trireme {
namespace {

nlohmann::json object_of(const std::string& text) {
  if (!text.starts_with('{')) return {};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : nlohmann::json();
}

bool is_conversation(const nlohmann::json& json) {
  for (const char* key : {"messages", "conversations"})
    if (json.is_object() && json.contains(key)) return true;
  return false;
}

}  // namespace

std::string prompt_of_line(const std::string& line, const std::string& file, std::size_t number, bool chat) {
  if (!line.starts_with('{')) return line;
  const nlohmann::json json = object_of(line);
  if (chat && is_conversation(json)) return line;
  require<DataError>(json.is_object() && json.contains("prompt") && json["prompt"].is_string(), file, ":", number,
                     ": starts with { but is not a JSON object with a string \"prompt\"",
                     chat ? " or with \"messages\"" : "", "\n  fix: a line of text, or {\"prompt\": \"...\"}");
  return json["prompt"].get<std::string>();
}

std::string conversation_of(const std::string& prompt, const std::string& system) {
  if (is_conversation(object_of(prompt))) return prompt;
  nlohmann::json messages = nlohmann::json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return nlohmann::json({{"messages", messages}}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::vector<data::TokenId> prompt_tokens(const ModelConfig& model, const data::Tokenizer& tokenizer,
                                         const std::string& prompt, const std::vector<data::TokenId>& end_tokens,
                                         const std::optional<data::ChatTemplate>& chat) {
  std::vector<data::TokenId> ids;
  if (chat) {
    std::vector<std::uint8_t> unused;
    try {
      data::encode_parts(tokenizer, data::ChatParser(*chat).parse_open(prompt), ids, unused);
    } catch (const data::BadDocument& bad) {
      throw DataError(text("the conversation ", bad.what(), "\n  fix: {\"messages\": [{\"role\": \"user\", ",
                           "\"content\": \"...\"}]}"));
    }
  } else {
    ids = tokenizer.encode(prompt, /*special_tokens=*/true);
    // The text goes on: an end token after the prompt would say that it does not.
    while (!ids.empty() && std::ranges::find(end_tokens, ids.back()) != end_tokens.end()) ids.pop_back();
  }
  for (const data::TokenId id : ids)
    require<ConfigError>(id < model.vocab_size, "the tokenizer ", tokenizer.name(), " has the token ", id,
                         ", the model a vocabulary of ", model.vocab_size,
                         "\n  fix: the tokenizer that the model was trained with");
  return ids;
}

void add_end_of_turn(const data::ChatTemplate& chat, const data::Tokenizer& tokenizer,
                     std::vector<data::TokenId>& end_tokens, std::vector<std::string>& stop_strings) {
  const std::string& suffix = chat.turn("assistant")->suffix;
  std::size_t first = std::string::npos;
  std::string token;
  for (const std::string& each : chat.tokens())
    if (const std::size_t at = (suffix + chat.end).find(each); at < first) {
      first = at;
      token = each;
    }
  if (const auto id = tokenizer.token_id(token); !token.empty() && id) {
    if (std::ranges::find(end_tokens, *id) == end_tokens.end()) end_tokens.push_back(*id);
  } else if (const auto* user = chat.turn("user"); user != nullptr && !(suffix + user->prefix).empty()) {
    stop_strings.push_back(suffix + user->prefix);
  }
}

std::vector<GeneratedText> generate_texts(InferenceModel& model, const data::Tokenizer& tokenizer,
                                          const std::vector<std::vector<data::TokenId>>& prompts,
                                          const GeneratorOptions& options, const std::vector<std::string>& stop_strings,
                                          const std::function<void(std::size_t, const std::string&)>& on_text,
                                          GenerationSpeed& speed) {
  std::vector<data::TextStream> streams;
  for (const std::vector<data::TokenId>& ids : prompts) streams.emplace_back(tokenizer, ids, stop_strings);
  std::vector<GeneratedText> out(prompts.size());
  const auto tell = [&](std::size_t i, const std::string& piece) {
    out[i].text += piece;
    if (!piece.empty() && on_text) on_text(i, piece);
  };
  const std::vector<GeneratedSequence> sequences = generate(
      model, prompts, options,
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
