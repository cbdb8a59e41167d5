#pragma once
// Conversations as text: what stands around each turn, and which parts a model learns to write.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// A part of a document, encoded on its own.
struct TextPart {
  enum class Origin {
    document,       // a text as it is: special tokens in it are found
    template_text,  // ours: special tokens in it are meant
    conversation    // somebody's words in a conversation: what spells a special token stays text
  };
  std::string_view text;
  Origin origin = Origin::document;
  bool counts = true;  // in the loss
};

// Note [Chat templates]: a document is `begin`, then for each message the prefix of its role, its words, and its suffix. The parts
// are encoded one by one, so a token never belongs to two of them: the words of a user cannot merge with the mark behind them, and
// the loss mask is exact. It is 1 on the words of the assistant and the suffix behind them, and on the end of the document.
struct ChatTemplate {
  struct Turn {
    std::string prefix, suffix;
  };
  std::string name;
  std::string begin;                                // before the first message
  std::vector<std::pair<std::string, Turn>> roles;  // "assistant" is the one that learns
  std::vector<std::string> special;                 // tokens that its text is made of

  /// "chatml", "plain", or a JSON file:
  ///   {"begin": "<s>", "roles": {"user": {"prefix": "...", "suffix": "..."}, "assistant": {...}}, "special": ["<s>"]}
  /// DataError when it is none.
  static ChatTemplate load(const std::string& name_or_file);

  /// DataError unless each of `special`, and whatever else in the text has the form <|...|>, is a special token of the tokenizer:
  /// otherwise a user's words could spell a turn of the assistant.
  void check(const Tokenizer& tokenizer) const;

  const Turn* turn(std::string_view role) const;
};

/// Takes lines {"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ..., "completion": ...} apart. One object a thread.
class ChatParser {
 public:
  explicit ChatParser(const ChatTemplate& chat_template) : template_(&chat_template) {}

  /// Valid until the next call. BadDocument (json_field.hpp) when the line is not such a line.
  const std::vector<TextPart>& parse(std::string_view line);

 private:
  void add(std::string_view role, std::string content);

  const ChatTemplate* template_;
  std::vector<std::pair<std::string, const ChatTemplate::Turn*>> messages_;
  std::vector<TextPart> parts_;
};

}  // namespace trireme::data
