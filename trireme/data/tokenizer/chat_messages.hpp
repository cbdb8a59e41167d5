#pragma once
// Conversations in the JSON that data sets have them in.
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", ...
  std::string content;
};

/// The messages of one line, by its keys:
///   messages                        [{"role": ..., "content": ...}, ...]
///   conversations                   [{"from": ..., "value": ...}, ...] (ShareGPT): human is the user, gpt answers
///   instruction, [input,] output    Alpaca: instruction and input, with a blank line between, are the user's
///   prompt, completion              texts, or lists of messages
/// With the last three, "system" may hold the system's message. A content is a text, or a list of {"type": "text",
/// "text": ...}. BadDocument (json_field.hpp) for an invalid line.
std::vector<ChatMessage> read_messages(std::string_view line);

}  // namespace trireme::data
