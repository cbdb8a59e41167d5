#pragma once
// Conversations in the JSON that data sets have them in.
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct ChatMessage {
  std::string role;  // as the data has it: "system", "user", "human", ...
  std::string content;
  bool learn = true;  // if it is an answer
};

/// The messages of one line, by its keys:
///   messages                        [{"role": ..., "content": ...}, ...]
///   conversations                   [{"from": ..., "value": ...}, ...] (ShareGPT)
///   instruction, [input,] output    Alpaca: instruction and input, with a blank line between, are the user's
///   prompt, completion              texts, or lists of messages
/// Besides these, "system" may hold the system's message. A content is a text, or a list of {"type": "text",
/// "text": ...}; an answer with "weight": 0 is not learnt. BadDocument (json_field.hpp) for an invalid line.
std::vector<ChatMessage> read_messages(std::string_view line);

/// "user" for "human" and "User", "assistant" for "gpt", and the like; other names stay.
std::string usual_role(const std::string& name);

}  // namespace trireme::data
