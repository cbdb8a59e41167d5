#include "trireme/data/pattern.hpp"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trireme/base/error.hpp"
#include "trireme/data/unicode.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme {
namespace {

// For one piece. A tokenizer's pattern takes a few steps for each; a hostile one stops here after some milliseconds.
constexpr std::uint32_t kMaxSteps = 500'000;
constexpr std::size_t kMaxPatternBytes = 1 << 16;

// White_Space of Unicode. PCRE2's own \s also takes U+180E, which left that class in Unicode 6.3.
constexpr std::string_view kSpaceInClass = R"(\t-\r\x{85}\p{Z})";

[[noreturn]] void refuse(std::string_view regex, std::string_view what) {
  throw DataError(text("the pattern ", shown_name(regex, 200), " has ", what,
                       "\n  Trireme's engine (PCRE2) would read that differently from the reference (Oniguruma)"));
}

std::string fault(int code) {
  std::string message(256, '\0');
  const int size = pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(message.data()), message.size());
  message.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return message;
}

/// `text` with a control character for every byte that is not UTF-8: of the same length, so that places stay the same.
std::string in_utf8(std::string_view from) {
  std::string out(from);
  for (std::size_t i = 0; i < from.size();) {
    const CodePoint c = first_code_point(from.substr(i));
    if (!c.well_formed) out[i] = '\x01';
    i += c.bytes;
  }
  return out;
}

}  // namespace

std::string translated(std::string_view regex) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < regex.size(); ++i) {
    const char c = regex[i];
    if (c == '\\') {
      if (i + 1 == regex.size()) refuse(regex, "a backslash at its end");
      const char escaped = regex[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kSpaceInClass) : text('[', kSpaceInClass, ']');
      } else if (escaped == 'S') {
        if (in_class) refuse(regex, "\\S inside [ ]");
        out += text("[^", kSpaceInClass, ']');
      } else if (std::string_view("wWbBhHRXKGQEyYAZzNOC").find(escaped) != std::string_view::npos) {
        refuse(regex, text('\\', escaped));
      } else {
        out += c;
        out += escaped;
        if (i + 1 < regex.size() && regex[i + 1] == '{') {  // \p{L}: its braces count nothing
          const std::size_t end = std::min(regex.find('}', i), regex.size() - 1);
          out += regex.substr(i + 1, end - i);
          i = end;
        }
      }
      continue;
    }
    if (in_class) {
      if (c == '[') refuse(regex, "[ inside [ ]");
      if (c == '&' && i + 1 < regex.size() && regex[i + 1] == '&') refuse(regex, "&& inside [ ]");
      if (c == ']') in_class = false;
    } else if (c == '[') {
      in_class = true;
      out += c;
      if (i + 1 < regex.size() && regex[i + 1] == '^') out += regex[++i];
      if (i + 1 < regex.size() && regex[i + 1] == ']') refuse(regex, "] as the first character inside [ ]");
      continue;
    } else if (c == '}' && i + 1 < regex.size() && regex[i + 1] == '+') {
      refuse(regex, "}+");  // possessive in one, "once more" in the other
    } else if (c == '(' && i + 1 < regex.size() && regex[i + 1] == '*') {
      refuse(regex, "(*");
    }
    out += c;
  }
  return out;
}

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  ~Compiled() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
};

Pattern::Pattern(std::string_view regex) : regex_(regex), compiled_(std::make_unique<Compiled>()) {
  require<DataError>(regex.size() <= kMaxPatternBytes, "a pattern of ", regex.size(), " bytes; at most ",
                     kMaxPatternBytes);
  require<DataError>(is_utf8(regex), "the pattern ", shown_name(regex), " is not UTF-8");
  const std::string ours = translated(regex);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Line by line: ^ and $ of the reference are those of Ruby.
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  require<DataError>(compiled_->code != nullptr, "the pattern ", shown_name(regex, 200),
                     " is no regular expression: ", fault(error), " (near its byte ", offset, ')');
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);  // without it the interpreter gives the same answers
  compiled_->limits = pcre2_match_context_create(nullptr);
  require<OutOfMemory>(compiled_->limits != nullptr, "no memory for a pattern");
  pcre2_set_match_limit(compiled_->limits, kMaxSteps);
  pcre2_set_depth_limit(compiled_->limits, kMaxSteps);
  pcre2_set_heap_limit(compiled_->limits, 1 << 16);  // KiB
}

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

std::vector<Span> Pattern::split(std::string_view from) const {
  std::string mended;
  std::string_view subject = from;
  if (!is_utf8(from)) subject = mended = in_utf8(from);
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr), &pcre2_match_data_free);
  require<OutOfMemory>(match != nullptr, "no memory for a match");

  std::vector<Span> spans;
  std::size_t done = 0, at = 0;
  while (at < subject.size()) {
    // NO_UTF_CHECK: it was checked above, and would be again from the beginning at every call.
    const int count = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), at,
                                  PCRE2_NO_UTF_CHECK, match.get(), compiled_->limits);
    if (count == PCRE2_ERROR_NOMATCH) break;
    require<DataError>(count >= 0, "the pattern ", shown_name(regex_, 200), " fails at byte ", at, " of a text of ",
                       from.size(), " bytes: ", fault(count), "\n  fix: a pattern that does not try so many ways");
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    const std::size_t begin = ends[0], end = ends[1];
    if (end <= begin) {  // an empty match: go on behind the next character
      at = begin < subject.size() ? begin + first_code_point(subject.substr(begin)).bytes : subject.size();
      continue;
    }
    if (begin > done) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});
    done = at = end;
  }
  if (done < subject.size()) spans.push_back({done, subject.size(), false});
  return spans;
}

}  // namespace trireme
