#include "trireme/data/tokenizer/chat.hpp"

#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/chat_messages.hpp"
#include "trireme/data/tokenizer/json_field.hpp"
#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/data/tokenizer/unicode.hpp"
#include "trireme/files/random_reader.hpp"
#include "trireme/files/shown_name.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme::data {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = 1 << 20;

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

ChatTemplate::Turn turn_in(const JsonView& view) {
  if (!view.value().is_object()) view.fail("is not an object with prefix and suffix");
  view.only({"prefix", "suffix", "lead"});
  return {view.string_or("prefix", ""), view.string_or("suffix", ""), view.string_or("lead", "")};
}

/// Without white space at both ends.
std::string_view trimmed(std::string_view words) {
  const ClassTable& classes = ClassTable::get();
  const auto is_space = [&](const CodePoint& c) { return (classes[c.value] & CharClass::space) != 0; };
  std::size_t end = 0;
  std::optional<std::size_t> begin;
  for (std::size_t i = 0; i < words.size();) {
    const CodePoint c = first_code_point(words.substr(i));
    if (!is_space(c)) {
      if (!begin) begin = i;
      end = i + c.bytes;
    }
    i += c.bytes;
  }
  return begin ? words.substr(*begin, end - *begin) : std::string_view();
}

/// The conversation as the template sees it: the system's message in its place.
std::vector<ChatMessage> arranged(std::vector<ChatMessage> messages, const ChatTemplate& chat) {
  if (chat.trim)
    for (ChatMessage& message : messages) message.content = std::string(trimmed(message.content));
  if (chat.skip_empty_system)
    std::erase_if(messages, [](const ChatMessage& m) { return m.role == "system" && m.content.empty(); });
  const bool has_system = !messages.empty() && messages.front().role == "system";
  if (!has_system && chat.default_system) messages.insert(messages.begin(), {"system", *chat.default_system});
  if (!has_system || !chat.system_in_user) return messages;
  if (messages.size() < 2 || messages[1].role != "user")
    throw BadDocument(text("the template ", chat.name, " has no turn of the system, and no user's message follows it"));
  messages[1].content =
      chat.system_in_user->prefix + messages[0].content + chat.system_in_user->suffix + messages[1].content;
  messages.erase(messages.begin());
  return messages;
}

}  // namespace

ChatTemplate ChatTemplate::load(const std::string& name_or_file) {
  if (name_or_file == "chatml") return chatml();
  if (name_or_file == "plain") return plain();
  require<DataError>(files::is_there(name_or_file), "the chat template ", files::shown_name(name_or_file),
                     " does not exist\n  fix: auto, chatml, plain, or a JSON file with begin, roles and special");
  const nlohmann::json value =
      JsonView::parsed(files::whole_file(name_or_file, kMaxTemplateBytes, "a chat template"), name_or_file);
  const JsonView view(value, name_or_file);
  view.only({"begin", "end", "roles", "special", "trim", "default_system", "skip_empty_system", "system_in_user"});
  ChatTemplate out{.name = name_or_file, .begin = view.string_or("begin", ""), .roles = {}, .special = {}};
  out.end = view.string_or("end", "");
  out.trim = view.flag("trim", false);
  out.skip_empty_system = view.flag("skip_empty_system", false);
  if (view.has("default_system")) out.default_system = view.at("default_system").string();
  if (view.has("system_in_user")) out.system_in_user = turn_in(view.at("system_in_user"));
  const JsonView roles = view.at("roles");
  if (!roles.value().is_object()) roles.fail("is not an object of roles");
  for (const auto& [role, turn] : roles.value().items())
    out.roles.push_back({role, turn_in(JsonView(turn, text(roles.place(), '.', files::shown_name(role))))});
  if (out.turn("assistant") == nullptr) roles.fail("has no \"assistant\": nothing would be learnt");
  if (view.has("special"))
    for (std::size_t i = 0; i < view.at("special").list_size(); ++i)
      out.special.push_back(view.at("special").at(i).string());
  return out;
}

std::vector<std::string> ChatTemplate::tokens() const {
  std::vector<std::string> found = special;
  std::string all = begin + end;
  for (const auto& [role, turn] : roles) all += turn.prefix + turn.lead + turn.suffix;
  for (std::size_t open = all.find("<|"); open != std::string::npos; open = all.find("<|", open + 2))
    if (const std::size_t close = all.find("|>", open); close != std::string::npos)
      found.push_back(all.substr(open, close + 2 - open));
  std::ranges::sort(found);
  const auto twice = std::ranges::unique(found);
  found.erase(twice.begin(), twice.end());
  return found;
}

bool ChatTemplate::ends_itself() const {
  const std::string last = turn("assistant")->suffix + end;
  return std::ranges::any_of(tokens(), [&](const auto& token) { return last.find(token) != std::string::npos; });
}

bool is_special_token(const Tokenizer& tokenizer, std::string_view token) {
  const auto id = tokenizer.token_id(token);
  const std::vector<TokenId> alone = tokenizer.encode_part(token, SpecialText::token);
  return id && alone == std::vector{*id} && tokenizer.encode_part(token, SpecialText::text) != alone;
}

void ChatTemplate::check(const Tokenizer& tokenizer) const {
  for (const std::string& token : tokens())
    require<DataError>(is_special_token(tokenizer, token), "the chat template ", name, " has ",
                       files::shown_name(token), ", which is ", tokenizer.token_id(token) ? "not a special" : "not a",
                       " token of ", tokenizer.name(), ": the words of a user could spell it",
                       "\n  fix: --template plain or a file with this tokenizer's own tokens, or a tokenizer with ",
                       files::shown_name(token), " as a special token");
}

const ChatTemplate::Turn* ChatTemplate::turn(std::string_view role) const {
  const auto found = std::ranges::find(roles, role, &std::pair<std::string, Turn>::first);
  return found == roles.end() ? nullptr : &found->second;
}

ChatParser::ChatParser(const ChatTemplate& chat_template)
    : template_(&chat_template), tokens_(chat_template.tokens()) {}

/// Cut at special tokens.
void ChatParser::add_template(std::string_view words, bool counts) {
  while (!words.empty()) {
    std::size_t at = std::string_view::npos, length = 0;
    for (const std::string& token : tokens_)
      if (const std::size_t place = words.find(token); place < at) {
        at = place;
        length = token.size();
      }
    add_plain(words.substr(0, at), counts);
    if (at == std::string_view::npos) return;
    segments_.push_back({std::string(words.substr(at, length)), TextPart::Origin::template_text, counts});
    words.remove_prefix(at + length);
  }
}

void ChatParser::add_plain(std::string_view words, bool counts) {
  if (words.empty()) return;
  const bool goes_on = !segments_.empty() && segments_.back().origin == TextPart::Origin::conversation &&
                       segments_.back().counts == counts;
  if (!goes_on) segments_.push_back({"", TextPart::Origin::conversation, counts});
  segments_.back().text += words;
}

/// `learn`: whether the last message is to be learnt.
void ChatParser::add_messages(std::string_view line, bool& learn) {
  segments_.clear();
  parts_.clear();
  std::vector<ChatMessage> messages = read_messages(line);
  if (messages.empty()) return;
  for (ChatMessage& message : messages)  // unless the template itself has a role "human"
    if (template_->turn(message.role) == nullptr) message.role = usual_role(message.role);
  const ChatTemplate::Turn* learns = template_->turn("assistant");
  add_template(template_->begin, false);
  for (const ChatMessage& message : arranged(std::move(messages), *template_)) {
    const ChatTemplate::Turn* turn = template_->turn(message.role);
    if (turn == nullptr) {
      std::string known;
      for (const auto& [name, unused] : template_->roles)
        known += (known.empty() ? "" : ", ") + files::shown_name(name);
      throw BadDocument(text("the role ", files::shown_name(message.role), " is not one of the template's: ", known));
    }
    learn = turn == learns && message.learn;
    add_template(turn->prefix, false);
    add_plain(turn->lead + message.content, learn);
    add_template(turn->suffix, learn);
  }
}

const std::vector<TextPart>& ChatParser::parts() {
  for (const Segment& segment : segments_) parts_.push_back({segment.text, segment.origin, segment.counts});
  return parts_;
}

const std::vector<TextPart>& ChatParser::parse(std::string_view line) {
  bool learn = false;
  add_messages(line, learn);
  if (!segments_.empty()) add_template(template_->end, learn);
  return parts();
}

const std::vector<TextPart>& ChatParser::parse_open(std::string_view line) {
  bool learn = false;
  add_messages(line, learn);
  add_template(template_->turn("assistant")->prefix, false);
  return parts();
}

void encode_parts(const Tokenizer& tokenizer, std::span<const TextPart> parts, std::vector<TokenId>& ids,
                  std::vector<std::uint8_t>& loss_mask) {
  TextPlace place = TextPlace::begins;
  for (const TextPart& part : parts) {
    const bool whole = part.origin == TextPart::Origin::document;
    const auto special = part.origin == TextPart::Origin::conversation ? SpecialText::text : SpecialText::token;
    const std::vector<TokenId> some =
        whole ? tokenizer.encode(part.text) : tokenizer.encode_part(part.text, special, place);
    place = special == SpecialText::token ? TextPlace::after_token : TextPlace::continues;
    ids.insert(ids.end(), some.begin(), some.end());
    if (!whole) loss_mask.resize(ids.size(), part.counts ? 1 : 0);
  }
}

}  // namespace trireme::data
