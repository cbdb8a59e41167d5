#pragma once
// Chat templates: how conversations are formatted as text, and which parts count in the loss.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::data {

/// A part of a document that is tokenized separately.
struct TextPart {
  enum class Origin {
    document,       // plain text: special tokens in it are recognized
    template_text,  // from the template: special tokens are intended
    conversation    // message content: special tokens in it stay plain text
  };
  std::string_view text;
  Origin origin = Origin::document;
  bool counts = true;  // in the loss
};

// Note [Chat templates]: a document is `begin`, then for each message the prefix of its role, its content, and its
// suffix. The parts are tokenized separately, so a token never spans two of them: user content cannot merge with the
// marker after it, and the loss mask is exact. It is 1 for the assistant's content and the suffix after it, and for the
// end-of-document token.
struct ChatTemplate {
  struct Turn {
    std::string prefix, suffix;
  };
  std::string name;
  std::string begin;                                // before the first message
  std::vector<std::pair<std::string, Turn>> roles;  // the loss counts for "assistant"
  std::vector<std::string> special;                 // special tokens used in the template

  /// "chatml", "plain", or a JSON file:
  ///   {"begin": "<s>", "roles": {"user": {"prefix": "...", "suffix": "..."}, "assistant": {...}}, "special": ["<s>"]}
  /// DataError otherwise.
  static ChatTemplate load(const std::string& name_or_file);

  /// DataError unless each of `special`, and everything else in the template of the form <|...|>, is a special token of
  /// the tokenizer: otherwise user content could imitate an assistant turn.
  void check(const Tokenizer& tokenizer) const;

  const Turn* turn(std::string_view role) const;
};

/// Parses lines {"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ..., "completion": ...}. One object
/// per thread.
class ChatParser {
 public:
  explicit ChatParser(const ChatTemplate& chat_template) : template_(&chat_template) {}

  /// Valid until the next call. BadDocument (json_field.hpp) for an invalid line.
  const std::vector<TextPart>& parse(std::string_view line);

 private:
  void add(std::string_view role, std::string content);

  const ChatTemplate* template_;
  std::vector<std::pair<std::string, const ChatTemplate::Turn*>> messages_;
  std::vector<TextPart> parts_;
};

}  // namespace trireme::data
