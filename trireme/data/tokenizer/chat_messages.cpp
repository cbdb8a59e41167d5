#include "trireme/data/tokenizer/chat_messages.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/json_field.hpp"
#include "trireme/files/json_bounds.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

/// Parts of the JSON library recurse over the tree: deep nesting must be rejected first.
bool is_deep(std::string_view line) {
  constexpr int kMaxDepth = 64;
  int depth = 0;
  bool in_text = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_text && c == '\\') ++i;
    if (c == '"') in_text = !in_text;
    if (in_text) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxDepth) return true;
  }
  return false;
}

Json parsed(std::string_view line) {
  if (line.find('\0') != std::string_view::npos) throw BadDocument("is not JSON: there is a NUL in it");
  if (is_deep(line)) throw BadDocument("is nested more than 64 deep");
  try {
    return Json::parse(line);
  } catch (const Json::exception& error) {
    throw BadDocument(text("is not JSON: ", files::json_fault(error.what())));
  }
}

/// A text, or a list of parts of text.
std::string text_of(const Json& object, const char* key) {
  const Json& value = object[key];
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) throw BadDocument(text("the value of \"", key, "\" is not a string"));
  std::string all;
  for (const Json& part : value) {
    const bool of_text = part.is_object() && part.value("type", Json("text")) == "text" && part.contains("text");
    if (!part.is_string() && !of_text)
      throw BadDocument(text("a part of \"", key, "\" is not text",
                             part.is_object() && part.contains("type") ? ": type " + part["type"].dump() : ""));
    all += part.is_string() ? part.get<std::string>() : text_of(part, "text");
  }
  return all;
}

/// Calls of tools would be lost, and what is left of the message, often nothing, learnt as the answer.
void refuse_calls(const Json& message) {
  for (const char* key : {"tool_calls", "function_call"})
    if (message.contains(key) && !message[key].empty() && message[key] != "")
      throw BadDocument(text("a message has \"", key, "\": calls of tools are not supported"));
}

bool is_learnt(const Json& message, const std::string& role) {
  if (usual_role(role) != "assistant" || !message.contains("weight") || message["weight"].is_null()) return true;
  const Json& weight = message["weight"];
  if (weight != 0 && weight != 1)
    throw BadDocument(text("the weight of a message is ", files::shown_name(weight.dump(), 30), ": neither 0 nor 1"));
  return weight == 1;
}

void add_list(const Json& value, const char* key, std::vector<ChatMessage>& messages) {
  if (!value.is_array()) throw BadDocument(text("the value of \"", key, "\" is not a list"));
  for (const Json& message : value) {
    const bool sharegpt = message.is_object() && message.contains("from");
    const char *role = sharegpt ? "from" : "role", *content = sharegpt ? "value" : "content";
    if (message.is_object()) refuse_calls(message);
    for (const char* name : {role, content})
      if (!message.is_object() || !message.contains(name))
        throw BadDocument(text("a message has no key \"", name, '"'));
    if (!message[role].is_string()) throw BadDocument(text("the value of \"", role, "\" is not a string"));
    const std::string who = message[role].get<std::string>();
    messages.push_back({who, text_of(message, content), is_learnt(message, who)});
  }
}

/// A text is one message of `role`; a list holds messages with their own.
void add_texts(const Json& value, const char* key, const char* role, std::vector<ChatMessage>& messages) {
  const bool is_list = value[key].is_array() && !value[key].empty() && value[key][0].contains("role");
  if (is_list)
    add_list(value[key], key, messages);
  else
    messages.push_back({role, text_of(value, key)});
}

/// What stands under "system" comes first, once.
void add_system(const Json& value, std::vector<ChatMessage>& messages) {
  if (!value.contains("system") || value["system"].is_null() || value["system"] == "") return;
  std::string said = text_of(value, "system");
  if (messages.empty() || usual_role(messages.front().role) != "system")
    messages.insert(messages.begin(), {"system", std::move(said)});
  else if (messages.front().content != said)
    throw BadDocument("the system's message stands under \"system\" and is the first one, and the two differ");
}

std::string keys_of(const Json& value) {
  std::string keys;
  for (const auto& [key, unused] : value.items()) {
    if (keys.size() > 100) return keys + ", ...";
    keys += (keys.empty() ? "" : ", ") + files::shown_name(key, 30);
  }
  return keys.empty() ? "it is empty" : "it has " + keys;
}

}  // namespace

std::vector<ChatMessage> read_messages(std::string_view line) {
  const Json value = parsed(line);
  if (!value.is_object()) throw BadDocument("is JSON, but not an object");
  const auto has = [&](const char* key) { return value.contains(key); };
  std::vector<ChatMessage> messages;
  if (has("messages")) {
    add_list(value["messages"], "messages", messages);
  } else if (has("conversations")) {
    add_list(value["conversations"], "conversations", messages);
  } else if (has("instruction") && has("output")) {
    std::string asked = text_of(value, "instruction");
    if (has("input") && !value["input"].is_null())
      if (const std::string more = text_of(value, "input"); !more.empty()) asked += "\n\n" + more;
    messages.push_back({"user", std::move(asked)});
    messages.push_back({"assistant", text_of(value, "output")});
  } else if (has("prompt") && has("completion")) {
    add_texts(value, "prompt", "user", messages);
    add_texts(value, "completion", "assistant", messages);
  } else {
    throw BadDocument(
        text("is not a conversation: neither messages, conversations, instruction and output, nor prompt "
             "and completion; ",
             keys_of(value)));
  }
  add_system(value, messages);
  return messages;
}

std::string usual_role(const std::string& name) {
  using Names = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Names, 8> kNames = {{{"human", "user"},
                                            {"gpt", "assistant"},
                                            {"chatgpt", "assistant"},
                                            {"bot", "assistant"},
                                            {"system", "system"},
                                            {"user", "user"},
                                            {"assistant", "assistant"},
                                            {"tool", "tool"}}};
  std::string small = name;
  for (char& c : small)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  const auto* const found = std::ranges::find(kNames, small, &Names::first);
  return found == kNames.end() ? name : std::string(found->second);
}

}  // namespace trireme::data
