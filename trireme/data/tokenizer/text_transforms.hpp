#pragma once
// Text processing before the model: normalizers change the text, pre-tokenizers split it.
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/data/tokenizer/character_normalizers.hpp"
#include "trireme/data/tokenizer/pattern.hpp"
#include "trireme/data/tokenizer/sentencepiece_normalizer.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {

// --- Normalizers ---
struct ToNormalForm {
  NormalForm form = NormalForm::nfc;
};
struct PrependText {
  std::string what;  // not prepended to an empty text
};
struct ReplaceText {
  Pattern pattern;
  std::string by;
};
using Normalizer = std::variant<ToNormalForm, PrependText, ReplaceText, CleanForNmt, LowerCase, StripAccents,
                                StripSpace, NormalizeForBert, ApplyCharsmap, SentencePieceNormalizer>;

/// `text` after one normalizer. Invalid UTF-8 is replaced first (U+FFFD). What continues a longer text gets no prefix.
std::string normalised_by(const Normalizer& step, std::string_view text, TextPlace place = TextPlace::begins);
/// Fast check whether a normalizer certainly leaves `text` unchanged, which is true for most texts.
bool leaves_alone(const Normalizer& step, std::string_view text);

// --- Pre-tokenizers ---
/// How the matches of a pattern are split off.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitText {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // matches and non-matches swap roles
};
/// Splits off numbers, as runs or as single digits.
struct SplitNumbers {
  bool individually = false;
};
/// Cuts at each character of a class.
struct SplitCharacters {
  enum class Class { white_space, punctuation };
  Class of = Class::white_space;
  SplitBehavior behavior = SplitBehavior::removed;
};
/// Runs of letters and the like, and runs of other characters; without white space ("Whitespace").
struct SplitWords {};
/// Cuts before each space mark that follows something else.
struct SplitBeforeMarks {};
/// Adds a space before each piece that has none.
struct PrefixSpace {};
struct Metaspace {
  enum class Prepend { always, first, never };
  std::string replacement;  // for spaces
  Prepend prepend = Prepend::always;
  bool split = true;
};
using PreTokenizer =
    std::variant<SplitText, SplitNumbers, SplitCharacters, SplitWords, SplitBeforeMarks, PrefixSpace, Metaspace>;

struct TextPiece {
  std::string_view text;
  TextPlace place = TextPlace::after_token;  // in the original input
};

/// The pieces after one pre-tokenizer, without empty ones. Newly created text is stored in `owned`.
std::vector<TextPiece> pieces_after(const PreTokenizer& step, const std::vector<TextPiece>& pieces,
                                    std::deque<std::string>& owned);

}  // namespace trireme::data
