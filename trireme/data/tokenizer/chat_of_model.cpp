#include "trireme/data/tokenizer/chat_of_model.hpp"

#include <algorithm>

#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

// A tokenizer_config.json may list many thousand added tokens.
constexpr std::uint64_t kMaxFileBytes = 1 << 26;

/// bos_token and the like: a text, or an object with it under "content".
std::string token_in(const JsonView& view, const char* key) {
  if (!view.has(key)) return "";
  return view.at(key).value().is_object() ? view.at(key).string_or("content", "") : view.at(key).string();
}

/// One template, or a list of them with names.
std::string template_in(const JsonView& view) {
  if (!view.has("chat_template")) return "";
  const JsonView found = view.at("chat_template");
  if (!found.value().is_array()) return found.string();
  for (std::size_t i = 0; i < found.list_size(); ++i)
    if (found.at(i).string_or("name", "") == "default") return found.at(i).string_or("template", "");
  return "";
}

/// The text of a template, asked for what it holds.
class JinjaText {
 public:
  explicit JinjaText(const std::string& jinja) : jinja_(with_newlines_spelled(jinja)) {}

  bool has(std::string_view words) const { return jinja_.find(words) != std::string::npos; }
  bool trims() const { return has("trim") || has("strip()"); }

  /// Whether a message's content is trimmed at one place and not at another.
  bool trims_some() const {
    bool trimmed = false, whole = false;
    for (const std::string_view content : {"message['content']", "message[\"content\"]", "message.content"})
      for (std::size_t at = jinja_.find(content); at != std::string::npos; at = jinja_.find(content, at + 1)) {
        std::string_view behind = std::string_view(jinja_).substr(at + content.size());
        behind.remove_prefix(std::min(behind.find_first_not_of(" )|"), behind.size()));
        (behind.starts_with("trim") || behind.starts_with(".strip()") ? trimmed : whole) = true;
      }
    return trimmed && whole;
  }

  /// Whether something is done in the last turn only. "not loop.last" stands in lists, for the commas.
  bool asks_for_last() const {
    constexpr std::string_view kLast = "loop.last", kNot = "not ";
    for (std::size_t at = jinja_.find(kLast); at != std::string::npos; at = jinja_.find(kLast, at + 1))
      if (!std::string_view(jinja_).substr(0, at).ends_with(kNot)) return true;
    return false;
  }

  /// The first literal with `words` in it, as it is meant: '[INST] ' has "[INST]".
  std::optional<std::string> literal_with(std::string_view words) const {
    const std::size_t at = jinja_.find(words);
    if (at == std::string::npos || at == 0) return std::nullopt;
    const std::size_t open = jinja_.find_last_of("'\"", at - 1);
    if (open == std::string::npos) return std::nullopt;
    const std::size_t close = jinja_.find(jinja_[open], at);
    if (close == std::string::npos) return std::nullopt;
    return meant(jinja_.substr(open + 1, close - open - 1));
  }

  /// What stands between `before` and `after` in one literal; nullopt if nothing does.
  std::optional<std::string> between(std::string_view before, std::string_view after) const {
    for (std::size_t at = jinja_.find(before); at != std::string::npos; at = jinja_.find(before, at + 1)) {
      const std::size_t begin = at + before.size(), end = jinja_.find(after, begin);
      if (end == std::string::npos) return std::nullopt;
      const std::string found = jinja_.substr(begin, end - begin);
      if (!found.empty() && found.find_first_of("'\"{}") == std::string::npos) return meant(found);
    }
    return std::nullopt;
  }

 private:
  /// A newline within a literal is spelled \n, or is one: JSON's own \n has become one.
  static std::string with_newlines_spelled(const std::string& jinja) {
    std::string out;
    for (const char c : jinja) out += c == '\n' ? std::string("\\n") : std::string(1, c);
    return out;
  }

  /// With escape sequences replaced.
  static std::string meant(const std::string& literal) {
    std::string out;
    for (std::size_t i = 0; i < literal.size(); ++i) {
      if (literal[i] != '\\' || i + 1 == literal.size()) {
        out += literal[i];
        continue;
      }
      const char c = literal[++i];
      out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
    return out;
  }

  std::string jinja_;
};

using Roles = std::vector<std::pair<std::string, ChatTemplate::Turn>>;

Roles turns_of_all(const std::vector<std::string>& roles, const std::string& before, const std::string& behind,
                   const std::string& suffix) {
  Roles out;
  for (const std::string& role : roles) out.push_back({role, {before + role + behind, suffix}});
  return out;
}

std::string begin_of(const JinjaText& text, const ModelChat& model) { return text.has("bos_token") ? model.bos : ""; }

ChatTemplate llama3_of(const JinjaText& text, const ModelChat& model) {
  ChatTemplate out{.name = "llama3",
                   .begin = text.has("bos_token")           ? model.bos
                            : text.has("<|begin_of_text|>") ? "<|begin_of_text|>"
                                                            : "",
                   .roles = turns_of_all({"system", "user", "assistant"}, "<|start_header_id|>",
                                         "<|end_header_id|>\n\n", "<|eot_id|>"),
                   .special = {}};
  out.trim = text.trims();
  if (text.has("Cutting Knowledge Date")) {  // Llama 3.1: always a turn of the system, with a date that does not change
    out.roles[0].second.prefix += "Cutting Knowledge Date: December 2023\nToday Date: " +
                                  text.between("date_string = \"", "\"").value_or("26 Jul 2024") + "\n\n";
    out.default_system = "";
  }
  return out;
}

ChatTemplate gemma_of(const JinjaText& text, const ModelChat& model) {
  ChatTemplate out{.name = "gemma",
                   .begin = begin_of(text, model),
                   .roles = {{"user", {"<start_of_turn>user\n", "<end_of_turn>\n"}},
                             {"assistant", {"<start_of_turn>model\n", "<end_of_turn>\n"}}},
                   .special = {"<start_of_turn>", "<end_of_turn>"}};
  out.trim = text.trims();
  if (text.has("first_user_prefix")) out.system_in_user = ChatTemplate::Turn{"", "\n\n"};  // Gemma 3
  return out;
}

ChatTemplate phi_of(const JinjaText& text, const ModelChat& model) {
  const bool named = text.has("<|user|>");  // else '<|' + role + '|>', as in Phi 4 mini
  ChatTemplate out{.name = "phi",
                   .begin = begin_of(text, model),
                   .roles = turns_of_all({"system", "user", "assistant"}, "<|", named ? "|>\n" : "|>",
                                         named ? "<|end|>\n" : "<|end|>"),
                   .special = {}};
  out.trim = text.trims();
  if (text.has("eos_token")) out.end = model.eos;
  out.skip_empty_system =  // Phi 3.5
      text.has("'system' and message['content']") || text.has("\"system\" and message[\"content\"]");
  return out;
}

ChatTemplate chatml_of(const JinjaText& text, const ModelChat& model) {
  const bool separator = text.has("<|im_sep|>");  // Phi 4
  ChatTemplate out{.name = separator ? "phi4" : "chatml",
                   .begin = begin_of(text, model),
                   .roles = turns_of_all({"system", "user", "assistant", "tool"}, "<|im_start|>",
                                         separator ? "<|im_sep|>" : "\n", separator ? "<|im_end|>" : "<|im_end|>\n"),
                   .special = {}};
  out.trim = text.trims();
  if (text.has("tool_response")) std::erase_if(out.roles, [](const auto& role) { return role.first == "tool"; });
  out.default_system = text.between("<|im_start|>system\\n", "<|im_end|>");
  return out;
}

ChatTemplate llama2_of(const JinjaText&, const ModelChat& model) {
  ChatTemplate out{.name = "llama2",
                   .begin = "",
                   .roles = {{"user", {model.bos + "[INST] ", " [/INST]"}}, {"assistant", {"", " " + model.eos, " "}}},
                   .special = {}};
  out.trim = true;
  out.system_in_user = ChatTemplate::Turn{"<<SYS>>\n", "\n<</SYS>>\n\n"};
  return out;
}

/// Its versions differ in spaces. Some put the system's message into the last turn of the user, or trim only answers:
/// that is not of a known kind.
std::optional<ChatTemplate> mistral_of(const JinjaText& text, const ModelChat& model) {
  const auto open = text.literal_with("[INST]"), close = text.literal_with("[/INST]");
  if (!open || !close || open->find("[/INST]") != std::string::npos) return std::nullopt;
  if (text.trims_some() || (text.has("system") && text.asks_for_last())) return std::nullopt;
  const bool spaced = text.has("' ' + message") || text.has("\" \" + message");
  ChatTemplate out{.name = "mistral",
                   .begin = begin_of(text, model),
                   .roles = {{"user", {*open, *close}}, {"assistant", {"", model.eos, spaced ? " " : ""}}},
                   .special = {}};
  out.trim = text.trims();
  if (text.has("[SYSTEM_PROMPT]"))
    out.roles.push_back({"system", {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"}});
  else if (text.has("system"))
    out.system_in_user = ChatTemplate::Turn{"", "\n\n"};
  return out;
}

std::optional<ChatTemplate> by_tokens(const JinjaText& text, const ModelChat& model) {
  if (text.has("reasoning_content") || text.has("<think>")) return std::nullopt;  // adds thoughts by rules of its own
  if (text.has("<|start_header_id|>")) return llama3_of(text, model);
  if (text.has("<start_of_turn>")) return gemma_of(text, model);
  if (text.has("<|im_start|>")) return chatml_of(text, model);
  if (text.has("<|end|>")) return phi_of(text, model);
  if (text.has("<<SYS>>")) return llama2_of(text, model);
  if (text.has("[INST]")) return mistral_of(text, model);
  return std::nullopt;
}

}  // namespace

ModelChat read_model_chat(const fs::path& tokenizer_path) {
  const fs::path folder = fs::is_directory(tokenizer_path) ? tokenizer_path : tokenizer_path.parent_path();
  const fs::path config = folder / "tokenizer_config.json", jinja = folder / "chat_template.jinja";
  ModelChat out;
  // The bytes tokenizer has no folder, and a tokenizer trained here stands among data.
  if (tokenizer_path == "bytes") return out;
  if (fs::is_regular_file(config)) {
    const nlohmann::json value =
        JsonView::parsed(files::whole_file(config, kMaxFileBytes, "a tokenizer's configuration"), config.string());
    const JsonView view(value, config.string());
    out = {config.string(), template_in(view), token_in(view, "bos_token"), token_in(view, "eos_token")};
  }
  if (fs::is_regular_file(jinja)) {
    out.file = jinja.string();
    out.jinja = files::whole_file(jinja, kMaxFileBytes, "a chat template");
  }
  return out;
}

std::optional<ChatTemplate> known_template(const ModelChat& model, const Tokenizer& tokenizer) {
  std::optional<ChatTemplate> out = by_tokens(JinjaText(model.jinja), model);
  if (!out) return std::nullopt;
  // Some tokenizers of Mistral have [INST] as a token, older ones spell it.
  for (const std::string& token : {model.bos, model.eos, std::string("[INST]"), std::string("[/INST]"),
                                   std::string("[SYSTEM_PROMPT]"), std::string("[/SYSTEM_PROMPT]")})
    if (!token.empty() && is_special_token(tokenizer, token)) out->special.push_back(token);
  return out;
}

ChosenTemplate choose_template(const fs::path& tokenizer_path, const Tokenizer& tokenizer) {
  const ModelChat model = read_model_chat(tokenizer_path);
  if (!model.jinja.empty())
    if (auto known = known_template(model, tokenizer)) return {std::move(*known), "that of " + model.file, false};
  const bool has_chatml = is_special_token(tokenizer, "<|im_start|>") && is_special_token(tokenizer, "<|im_end|>");
  const std::string why = model.jinja.empty() ? "there is none in the tokenizer's folder"
                                              : "that of " + model.file + " is not of a known kind";
  return {ChatTemplate::load(has_chatml ? "chatml" : "plain"), why, !has_chatml || !model.jinja.empty()};
}

}  // namespace trireme::data
