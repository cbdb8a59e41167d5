#pragma once
// What happens to a text before the model sees it: normalizers change it, pre-tokenizers cut it.
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trireme/data/tokenizer/pattern.hpp"
#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {

// --- Normalizers ---
struct ToNormalForm {
  NormalForm form = NormalForm::nfc;
};
struct PrependText {
  std::string what;  // not before an empty text
};
struct ReplaceText {
  Pattern pattern;
  std::string by;
};
using Normalizer = std::variant<ToNormalForm, PrependText, ReplaceText>;

/// `text` after one step. Text that is not UTF-8 is made so first (U+FFFD).
std::string normalised_by(const Normalizer& step, std::string_view text);
/// Whether a step certainly leaves `text` alone: worth asking, most texts need nothing.
bool leaves_alone(const Normalizer& step, std::string_view text);

// --- Pre-tokenizers ---
/// What becomes of the matches of a pattern.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct SplitText {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // what does not match takes the part of what does
};
/// Numbers by themselves, together or each alone.
struct SplitNumbers {
  bool individually = false;
};
/// A space before each piece that has none.
struct PrefixSpace {};
struct Metaspace {
  enum class Prepend { always, first, never };
  std::string replacement;  // for spaces
  Prepend prepend = Prepend::always;
  bool split = true;
};
using PreTokenizer = std::variant<SplitText, SplitNumbers, PrefixSpace, Metaspace>;

struct TextPiece {
  std::string_view text;
  bool begins_text = false;  // at the very beginning of what the user gave
};

/// The pieces after one step, none of them empty. What a step writes anew is kept in `owned`.
std::vector<TextPiece> pieces_after(const PreTokenizer& step, const std::vector<TextPiece>& pieces,
                                    std::deque<std::string>& owned);

}  // namespace trireme::data
