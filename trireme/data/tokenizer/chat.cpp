#include "trireme/data/tokenizer/chat.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/data/prepare/json_field.hpp"
#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/files/json_bounds.hpp"
#include "trireme/files/random_reader.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

ChatTemplate chatml() {
  ChatTemplate out{.name = "chatml", .begin = "", .roles = {}, .special = {"<|im_start|>", "<|im_end|>"}};
  for (const std::string role : {"system", "user", "assistant", "tool"})
    out.roles.push_back({role, {"<|im_start|>" + role + "\n", "<|im_end|>\n"}});
  return out;
}

ChatTemplate plain() {
  return {
      .name = "plain",
      .begin = "",
      .roles = {{"system", {"System: ", "\n\n"}}, {"user", {"User: ", "\n\n"}}, {"assistant", {"Assistant: ", "\n\n"}}},
      .special = {}};
}

std::string file_text(const std::string& path) {
  const files::RandomReader file(path);
  constexpr std::uint64_t kMaxBytes = 1 << 20;
  require<DataError>(file.size() <= kMaxBytes, path, ": ", file.size(), " bytes; a chat template has at most ",
                     kMaxBytes);
  std::string words(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(words)));
  return words;
}

/// Parts of the JSON library recurse over the tree: deep nesting must be rejected first.
bool is_deep(std::string_view json) {
  constexpr int kMaxDepth = 64;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (in_text && c == '\\') ++i;
    if (c == '"') in_text = !in_text;
    if (in_text) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxDepth) return true;
  }
  return false;
}

std::string string_of(const nlohmann::json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) throw BadDocument(text("a message has no key \"", key, '"'));
  if (!object[key].is_string()) throw BadDocument(text("what stands under \"", key, "\" is not a text"));
  return object[key].get<std::string>();
}

nlohmann::json parsed(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) throw BadDocument("is not JSON: there is a NUL in it");
  if (is_deep(line)) throw BadDocument("is nested more than 64 deep");
  try {
    return nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    throw BadDocument(text("is not JSON: ", files::json_fault(error.what())));
  }
}

}  // namespace

ChatTemplate ChatTemplate::load(const std::string& name_or_file) {
  if (name_or_file == "chatml") return chatml();
  if (name_or_file == "plain") return plain();
  require<DataError>(files::is_there(name_or_file), "the chat template ", files::shown_name(name_or_file),
                     " does not exist\n  fix: chatml, plain, or a JSON file with begin, roles and special");
  const nlohmann::json value = JsonView::parsed(file_text(name_or_file), name_or_file);
  const JsonView view(value, name_or_file);
  view.only({"begin", "roles", "special"});
  ChatTemplate out{.name = name_or_file, .begin = view.string_or("begin", ""), .roles = {}, .special = {}};
  const JsonView roles = view.at("roles");
  if (!roles.value().is_object()) roles.fail("is not an object of roles");
  for (const auto& [role, turn] : roles.value().items()) {
    const JsonView each(turn, text(roles.place(), '.', files::shown_name(role)));
    if (!turn.is_object()) each.fail("is not an object with prefix and suffix");
    each.only({"prefix", "suffix"});
    out.roles.push_back({role, {each.string_or("prefix", ""), each.string_or("suffix", "")}});
  }
  if (out.turn("assistant") == nullptr) roles.fail("has no \"assistant\": nothing would be learnt");
  if (view.has("special"))
    for (std::size_t i = 0; i < view.at("special").list_size(); ++i)
      out.special.push_back(view.at("special").at(i).string());
  return out;
}

void ChatTemplate::check(const Tokenizer& tokenizer) const {
  std::vector<std::string> wanted = special;
  std::string all = begin;
  for (const auto& [role, turn] : roles) all += turn.prefix + turn.suffix;
  for (std::size_t open = all.find("<|"); open != std::string::npos; open = all.find("<|", open + 2))
    if (const std::size_t close = all.find("|>", open); close != std::string::npos)
      wanted.push_back(all.substr(open, close + 2 - open));
  for (const std::string& token : wanted) {
    const auto id = tokenizer.token_id(token);
    const std::vector<TokenId> alone = tokenizer.encode(token);
    const bool is_token = id && alone == std::vector{*id};
    require<DataError>(is_token && tokenizer.encode_part(token, SpecialText::text, true) != alone, "the chat template ",
                       name, " has ", files::shown_name(token), ", which is ", is_token ? "not a special" : "not a",
                       " token of ", tokenizer.name(), ": the words of a user could spell it",
                       "\n  fix: --template plain or a file with this tokenizer's own tokens, or a tokenizer with ",
                       files::shown_name(token), " as a special token");
  }
}

const ChatTemplate::Turn* ChatTemplate::turn(std::string_view role) const {
  const auto found = std::ranges::find(roles, role, &std::pair<std::string, Turn>::first);
  return found == roles.end() ? nullptr : &found->second;
}

void ChatParser::add(std::string_view role, std::string content) {
  const ChatTemplate::Turn* turn = template_->turn(role);
  if (turn == nullptr) {
    std::string known;
    for (const auto& [name, unused] : template_->roles) known += (known.empty() ? "" : ", ") + files::shown_name(name);
    throw BadDocument(text("the role ", files::shown_name(role), " is not one of the template's: ", known));
  }
  messages_.emplace_back(std::move(content), turn);
}

const std::vector<TextPart>& ChatParser::parse(std::string_view line) {
  using Origin = TextPart::Origin;
  const nlohmann::json value = parsed(line);
  if (!value.is_object()) throw BadDocument("is JSON, but not an object");
  messages_.clear();
  if (value.contains("messages")) {
    const nlohmann::json& messages = value["messages"];
    if (!messages.is_array()) throw BadDocument("what stands under \"messages\" is not a list");
    for (const nlohmann::json& message : messages) {
      const std::string role = string_of(message, "role");  // first: reported if both are invalid
      add(role, string_of(message, "content"));
    }
  } else if (value.contains("prompt") && value.contains("completion")) {
    add("user", string_of(value, "prompt"));
    add("assistant", string_of(value, "completion"));
  } else {
    throw BadDocument("has neither \"messages\" nor \"prompt\" and \"completion\"");
  }
  parts_.clear();
  if (messages_.empty()) return parts_;
  const ChatTemplate::Turn* learns = template_->turn("assistant");
  parts_.push_back({template_->begin, Origin::template_text, false});
  for (const auto& [content, turn] : messages_) {
    parts_.push_back({turn->prefix, Origin::template_text, false});
    parts_.push_back({content, Origin::conversation, turn == learns});
    parts_.push_back({turn->suffix, Origin::template_text, turn == learns});
  }
  return parts_;
}

}  // namespace trireme::data
