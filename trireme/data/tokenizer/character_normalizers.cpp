#include "trireme/data/tokenizer/character_normalizers.hpp"

#include "trireme/data/tokenizer/reference_classes.hpp"
#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {
namespace {

/// Calls one(code point, its bytes) for each character.
template <class One>
void for_each_character(std::string_view text, const One& one) {
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    one(c.value, text.substr(0, c.bytes));
    text.remove_prefix(c.bytes);
  }
}

template <class IsRemoved>
std::string without(std::string_view text, const IsRemoved& is_removed) {
  std::string out;
  for_each_character(text, [&](char32_t value, std::string_view bytes) {
    if (!is_removed(value)) out += bytes;
  });
  return out;
}

bool is_white_space(char32_t value) { return ClassTable::get()[value] & CharClass::space; }

// The lists of "Nmt": what it removes, and what it makes a space.
bool is_removed_for_nmt(char32_t c) {
  return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
}
bool is_space_for_nmt(char32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
}

bool is_ideograph(char32_t c) {
  const auto within = [&](char32_t first, char32_t last) { return c >= first && c <= last; };
  return within(0x4E00, 0x9FFF) || within(0x3400, 0x4DBF) || within(0x20000, 0x2A6DF) || within(0x2A700, 0x2B73F) ||
         within(0x2B740, 0x2B81F) || within(0x2B920, 0x2CEAF) || within(0xF900, 0xFAFF) || within(0x2F800, 0x2FA1F);
}

std::string cleaned_for_bert(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t value, std::string_view bytes) {
    if (is_bert_control(value)) return;
    out += is_white_space(value) ? std::string_view(" ") : bytes;
  });
  return out;
}

std::string with_separate_ideographs(std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t value, std::string_view bytes) {
    if (is_ideograph(value))
      out.append(" ").append(bytes).append(" ");
    else
      out += bytes;
  });
  return out;
}

}  // namespace

std::string applied(const CleanForNmt&, std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t value, std::string_view bytes) {
    if (!is_removed_for_nmt(value)) out += is_space_for_nmt(value) ? std::string_view(" ") : bytes;
  });
  return out;
}

std::string applied(const LowerCase&, std::string_view text) {
  std::string out;
  for_each_character(text, [&](char32_t value, std::string_view) { append_lower_case(out, value); });
  return out;
}

std::string applied(const StripAccents&, std::string_view text) { return without(text, is_accent); }

std::string applied(const StripSpace& step, std::string_view text) {
  std::size_t begin = std::string_view::npos, end = 0;  // of what is not white space
  for_each_character(text, [&](char32_t value, std::string_view bytes) {
    if (is_white_space(value)) return;
    end = static_cast<std::size_t>(bytes.data() + bytes.size() - text.data());
    if (begin == std::string_view::npos) begin = end - bytes.size();
  });
  if (begin == std::string_view::npos) return step.left || step.right ? std::string() : std::string(text);
  if (step.right) text = text.substr(0, end);
  if (step.left) text.remove_prefix(begin);
  return std::string(text);
}

std::string applied(const NormalizeForBert& step, std::string_view text) {
  std::string out(text);
  if (step.clean) out = cleaned_for_bert(out);
  if (step.separate_chinese) out = with_separate_ideographs(out);
  if (step.strip_accents) out = without(normalised(out, NormalForm::nfd), is_bert_accent);
  if (step.lower_case) out = applied(LowerCase{}, out);
  return out;
}

// A grapheme of a few bytes is replaced as a whole by the rule for its beginning, and loses the rest: what the
// reference does, and models were trained with.
std::string applied(const ApplyCharsmap& step, std::string_view text) {
  constexpr std::size_t kFewBytes = 6;
  std::string out;
  while (!text.empty()) {
    const std::string_view grapheme = text.substr(0, first_grapheme_bytes(text));
    text.remove_prefix(grapheme.size());
    const auto whole = grapheme.size() < kFewBytes ? step.rules.shortest(grapheme) : std::nullopt;
    if (whole) {
      out += whole->by;
      continue;
    }
    for_each_character(grapheme, [&](char32_t, std::string_view bytes) {
      const auto rule = step.rules.shortest(bytes);
      out += rule ? rule->by : bytes;
    });
  }
  return out;
}

}  // namespace trireme::data
