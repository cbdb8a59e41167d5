#pragma once
// Chat templates: how conversations are formatted as text, and which parts count in the loss.
#include <cstdint>
#include <optional>
#include <span>
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

// Note [Chat templates]: a document is `begin`, then for each message the prefix of its role, its content and its
// suffix, then `end`. The loss mask is 1 for the assistant's content, the suffix after it, and `end` behind that; but
// 0 for answers that are not to be learnt. The text is cut at special tokens and where the mask changes, and what is
// between is tokenized as one: as transformers does with the whole text, except where an answer begins. Message content
// never becomes a special token.
struct ChatTemplate {
  struct Turn {
    std::string prefix, suffix;
    std::string lead = {};  // belongs to the content: counts with it
  };
  std::string name;
  std::string begin;                                // before the first message
  std::vector<std::pair<std::string, Turn>> roles;  // the loss counts for "assistant"
  std::vector<std::string> special;                 // special tokens used in the template

  std::string end = {};                            // behind the last message
  bool trim = false;                               // contents lose white space at both ends
  std::optional<std::string> default_system = {};  // what the system says if a conversation does not begin with it
  bool skip_empty_system = false;                  // an empty message of the system is left out
  std::optional<Turn> system_in_user = {};         // there is no system's turn: its message, between these, begins the
                                                   // first one of the user

  /// "chatml", "plain", or a JSON file:
  ///   {"begin": "<s>", "roles": {"user": {"prefix": "...", "suffix": "..."}, "assistant": {...}}, "special": ["<s>"]}
  /// with the other members under their names. DataError otherwise. What a model itself uses: chat_of_model.hpp.
  static ChatTemplate load(const std::string& name_or_file);

  /// DataError unless each of `special`, and everything else in the template of the form <|...|>, is a special token of
  /// the tokenizer: otherwise user content could imitate an assistant turn.
  void check(const Tokenizer& tokenizer) const;

  const Turn* turn(std::string_view role) const;

  /// The special tokens of its texts: `special`, and what has the form <|...|>.
  std::vector<std::string> tokens() const;
  /// Whether a special token ends an answer, so that no end-of-document token is needed behind it.
  bool ends_itself() const;
};

/// Whether `token` is one token of the tokenizer, which text cannot spell.
bool is_special_token(const Tokenizer& tokenizer, std::string_view token);

/// Formats conversations as parts to tokenize. One object per thread.
class ChatParser {
 public:
  explicit ChatParser(const ChatTemplate& chat_template);

  /// `line`: JSON as for read_messages (chat_messages.hpp). Valid until the next call. BadDocument (json_field.hpp) for
  /// an invalid line.
  const std::vector<TextPart>& parse(std::string_view line);
  /// The conversation of `line` so far, and the beginning of the assistant's next turn: what a model answers.
  const std::vector<TextPart>& parse_open(std::string_view line);

 private:
  void add_messages(std::string_view line, bool& learn);
  const std::vector<TextPart>& parts();
  struct Segment {
    std::string text;
    TextPart::Origin origin;
    bool counts;
  };
  void add_template(std::string_view words, bool counts);
  void add_plain(std::string_view words, bool counts);

  const ChatTemplate* template_;
  std::vector<std::string> tokens_;
  std::vector<Segment> segments_;
  std::vector<TextPart> parts_;
};

/// Appends the tokens of a document's parts to `ids`, and, unless it is plain text, to `loss_mask` which of them count.
void encode_parts(const Tokenizer& tokenizer, std::span<const TextPart> parts, std::vector<TokenId>& ids,
                  std::vector<std::uint8_t>& loss_mask);

}  // namespace trireme::data
