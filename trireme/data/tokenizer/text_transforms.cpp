#include "trireme/data/tokenizer/text_transforms.hpp"

#include <algorithm>

#include "trireme/base/utf8.hpp"
#include "trireme/data/tokenizer/reference_classes.hpp"

namespace trireme::data {
namespace {

std::string applied(const ToNormalForm& step, std::string_view text) { return normalised(text, step.form); }

std::string applied(const PrependText& step, std::string_view text) {
  return text.empty() ? std::string() : step.what + std::string(text);
}

std::string applied(const ReplaceText& step, std::string_view text) {
  std::string out;
  for (const Span& span : step.pattern.split(text))
    out += span.matched ? std::string_view(step.by) : text.substr(span.begin, span.end - span.begin);
  return out;
}

/// Turns matched and unmatched spans of `text` into pieces, according to the behavior.
std::vector<std::string_view> with_behavior(std::string_view text, const std::vector<Span>& spans,
                                            SplitBehavior behavior) {
  std::vector<Span> kept;
  switch (behavior) {
    case SplitBehavior::isolated: kept = spans; break;
    case SplitBehavior::removed:
      std::ranges::copy_if(spans, std::back_inserter(kept), [](const Span& span) { return !span.matched; });
      break;
    case SplitBehavior::contiguous:
      for (const Span& span : spans)
        if (!kept.empty() && kept.back().matched == span.matched)
          kept.back().end = span.end;
        else
          kept.push_back(span);
      break;
    case SplitBehavior::merged_with_previous: {
      bool after_match = false;
      for (const Span& span : spans) {
        if (span.matched && !after_match && !kept.empty())
          kept.back().end = span.end;
        else
          kept.push_back(span);
        after_match = span.matched;
      }
      break;
    }
    case SplitBehavior::merged_with_next: {
      bool before_match = false;
      for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
        if (span->matched && !before_match && !kept.empty())
          kept.back().begin = span->begin;
        else
          kept.push_back(*span);
        before_match = span->matched;
      }
      std::ranges::reverse(kept);
      break;
    }
  }
  std::vector<std::string_view> out;
  for (const Span& span : kept)
    if (span.end > span.begin) out.push_back(text.substr(span.begin, span.end - span.begin));
  return out;
}

std::vector<std::string_view> cut(const SplitText& step, const TextPiece& piece, std::deque<std::string>&) {
  std::vector<Span> spans = step.pattern.split(piece.text);
  if (step.invert)
    for (Span& span : spans) span.matched = !span.matched;
  return with_behavior(piece.text, spans, step.behavior);
}

/// Spans of the characters that `is_match` accepts, and of the others. `individually`: each match is a span.
template <class IsMatch>
std::vector<Span> spans_of(std::string_view text, bool individually, const IsMatch& is_match) {
  std::vector<Span> spans;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    const bool matched = is_match(c.value);
    if (!spans.empty() && spans.back().matched == matched && !(matched && individually))
      spans.back().end = at + c.bytes;
    else
      spans.push_back({at, at + c.bytes, matched});
    at += c.bytes;
  }
  return spans;
}

bool has_class(char32_t value, std::uint8_t bits) { return (ClassTable::get()[value] & bits) != 0; }

std::vector<std::string_view> cut(const SplitNumbers& step, const TextPiece& piece, std::deque<std::string>&) {
  const auto is_number = [](char32_t value) { return has_class(value, CharClass::number); };
  return with_behavior(piece.text, spans_of(piece.text, step.individually, is_number), SplitBehavior::isolated);
}

std::vector<std::string_view> cut(const SplitCharacters& step, const TextPiece& piece, std::deque<std::string>&) {
  const auto is_of_class = [&](char32_t value) {
    return step.of == SplitCharacters::Class::punctuation ? is_punctuation(value) : has_class(value, CharClass::space);
  };
  return with_behavior(piece.text, spans_of(piece.text, true, is_of_class), step.behavior);
}

std::vector<std::string_view> cut(const SplitWords&, const TextPiece& piece, std::deque<std::string>&) {
  std::vector<std::string_view> out;
  const auto is_space = [](char32_t value) { return has_class(value, CharClass::space); };
  for (const Span& run : spans_of(piece.text, false, is_space)) {
    if (run.matched) continue;
    const std::string_view word = piece.text.substr(run.begin, run.end - run.begin);
    for (const Span& part : spans_of(word, false, is_word_character))
      out.push_back(word.substr(part.begin, part.end - part.begin));
  }
  return out;
}

std::vector<std::string_view> cut(const SplitBeforeMarks&, const TextPiece& piece, std::deque<std::string>&) {
  std::vector<std::string_view> out;
  std::string_view rest = piece.text;
  for (std::size_t mark = rest.find(kSpaceMark, 1); mark != std::string_view::npos;) {
    if (rest.substr(0, mark).ends_with(kSpaceMark)) {
      mark = rest.find(kSpaceMark, mark + 1);
      continue;
    }
    out.push_back(rest.substr(0, mark));
    rest.remove_prefix(mark);
    mark = rest.find(kSpaceMark, 1);
  }
  if (!rest.empty()) out.push_back(rest);
  return out;
}

std::vector<std::string_view> cut(const PrefixSpace&, const TextPiece& piece, std::deque<std::string>& owned) {
  if (piece.text.starts_with(' ') || piece.place == TextPlace::continues) return {piece.text};
  return {owned.emplace_back(" " + std::string(piece.text))};
}

std::vector<std::string_view> cut(const Metaspace& step, const TextPiece& piece, std::deque<std::string>& owned) {
  std::string& changed = owned.emplace_back();
  for (const char c : piece.text)
    if (c == ' ')
      changed += step.replacement;
    else
      changed += c;
  using Prepend = Metaspace::Prepend;
  const bool wanted = (step.prepend == Prepend::always && piece.place != TextPlace::continues) ||
                      (step.prepend == Prepend::first && piece.place == TextPlace::begins);
  if (wanted && !changed.starts_with(step.replacement)) changed.insert(0, step.replacement);
  if (!step.split) return {changed};
  std::vector<Span> spans;  // each replacement belongs to the text after it
  for (std::size_t at = 0; at < changed.size();) {
    const std::size_t found = std::min(changed.find(step.replacement, at), changed.size());
    if (found > at) spans.push_back({at, found, false});
    if (found < changed.size()) spans.push_back({found, found + step.replacement.size(), true});
    at = std::min(found + step.replacement.size(), changed.size());
  }
  return with_behavior(changed, spans, SplitBehavior::merged_with_next);
}

}  // namespace

std::string normalised_by(const Normalizer& step, std::string_view text, TextPlace place) {
  const bool begins = place != TextPlace::continues;
  if (const auto* whole = std::get_if<SentencePieceNormalizer>(&step)) return (*whole)(text, begins);
  std::string mended;
  if (!is_utf8(text)) text = mended = valid_utf8(text);
  if (!begins && std::holds_alternative<PrependText>(step)) return std::string(text);
  return std::visit(
      [&](const auto& which) -> std::string {
        if constexpr (std::is_same_v<decltype(which), const SentencePieceNormalizer&>)
          return {};  // above
        else
          return applied(which, text);
      },
      step);
}

bool leaves_alone(const Normalizer& step, std::string_view text) {
  const auto* form = std::get_if<ToNormalForm>(&step);
  return form && form->form == NormalForm::nfc && !may_change_in_nfc(text);
}

std::vector<TextPiece> pieces_after(const PreTokenizer& step, const std::vector<TextPiece>& pieces,
                                    std::deque<std::string>& owned) {
  std::vector<TextPiece> out;
  for (const TextPiece& piece : pieces) {
    TextPlace place = piece.place;
    for (const std::string_view part : std::visit([&](const auto& which) { return cut(which, piece, owned); }, step)) {
      // If a split drops the start of the text, no piece stands there; rewritten text still does.
      const bool rewritten = std::holds_alternative<PrefixSpace>(step) || std::holds_alternative<Metaspace>(step);
      const bool at_start = rewritten || part.data() == piece.text.data();
      out.push_back({part, at_start ? place : TextPlace::after_token});
      place = TextPlace::after_token;
    }
  }
  return out;
}

}  // namespace trireme::data
