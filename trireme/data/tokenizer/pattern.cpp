#include "trireme/data/tokenizer/pattern.hpp"

#include <algorithm>
#include <optional>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/unicode.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

// Limit per match: a pattern may backtrack over a long run of spaces a few times. A malicious one is stopped early.
std::uint32_t max_steps(std::size_t text_bytes) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(1'000'000 + 16 * text_bytes, 0xFFFFFFFF));
}
constexpr std::size_t kMaxPatternBytes = 1 << 16;

// Unicode's White_Space. PCRE2's own \s also matches U+180E, which left that class in Unicode 6.3.
constexpr std::string_view kSpaceInClass = R"(\t-\r\x{85}\p{Z})";

std::string fault(int code) {
  std::string message(256, '\0');
  const int size = pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(message.data()), message.size());
  message.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return message;
}

/// `text` with every invalid UTF-8 byte replaced by a control character: same length, so that offsets stay valid.
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

namespace {

/// Translates Oniguruma syntax to PCRE2, from left to right. Rejects anything not known to mean the same in both.
class Translator {
 public:
  explicit Translator(std::string_view regex) : regex_(regex) {}

  std::string run() {
    while (at_ < regex_.size()) {
      const char c = regex_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        class_member();
      else if (c == '[')
        class_begin();
      else if (c == '(')
        group();
      else if (c == '{')
        counted();
      else
        take(1);
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return regex_.substr(at_); }
  void take(std::size_t n) {
    out_ += regex_.substr(at_, n);
    at_ += n;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw DataError(text("the pattern ", files::shown_name(regex_, 200), " has ", what,
                         "\n  Trireme's engine (PCRE2) would read that differently from the reference (Oniguruma), or "
                         "it is not known to read it alike"));
  }

  void escape() {
    if (at_ + 1 == regex_.size()) refuse("a backslash at its end");
    const char c = regex_[at_ + 1];
    if (c == 's' || c == 'S') {
      if (in_class_ && c == 'S') refuse("\\S inside [ ]");
      out_ += in_class_ ? std::string(kSpaceInClass) : text(c == 's' ? "[" : "[^", kSpaceInClass, ']');
      at_ += 2;
    } else if (c == 'p' || c == 'P') {
      property();
    } else if (c == 'x' && rest().substr(2).starts_with('{')) {
      take(std::min(rest().find('}'), rest().size() - 1) + 1);
    } else if (std::string_view("dDrntfx").find(c) != std::string_view::npos || !is_letter_or_digit(c)) {
      take(2);
    } else {
      refuse(text('\\', c));
    }
  }

  static bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  }

  /// \p{L}, \p{Lu}: general categories. Longer names are scripts, for which PCRE2 uses script extensions by default.
  void property() {
    const std::size_t end = rest().find('}');
    if (!rest().substr(2).starts_with('{') || end == std::string_view::npos)
      refuse(text(rest().substr(0, 2), " without { }"));
    std::string_view name = rest().substr(3, end - 3);
    out_ += rest().substr(0, 3);
    if (name.starts_with('^')) {
      out_ += '^';
      name.remove_prefix(1);
    }
    out_ += text(name.size() > 2 ? "sc:" : "", name, '}');
    at_ += end + 1;
  }

  void class_begin() {
    in_class_ = true;
    take(rest().starts_with("[^") ? 2 : 1);
    if (rest().starts_with(']')) refuse("] as the first character inside [ ]");
  }

  void class_member() {
    if (rest().starts_with('[')) refuse("[ inside [ ]");
    if (rest().starts_with("&&")) refuse("&& inside [ ]");
    if (rest().starts_with(']')) in_class_ = false;
    take(1);
  }

  void group() {
    if (rest().starts_with("(*")) refuse("(*");
    if (!rest().starts_with("(?")) return take(1);
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"})
      if (rest().starts_with(known)) return take(known.size());
    refuse(rest().substr(0, 4));
  }

  /// {n}, {n,} or {n,m}.
  void counted() {
    const std::size_t end = rest().find('}');
    const std::string_view inside = end == std::string_view::npos ? "" : rest().substr(1, end - 1);
    const bool numbers = !inside.empty() && inside.find_first_not_of("0123456789,") == std::string_view::npos &&
                         inside[0] != ',' && std::ranges::count(inside, ',') <= 1;
    if (!numbers) refuse("{ that does not begin a count such as {1,3}");
    const std::string_view behind = rest().substr(end + 1);
    if (behind.starts_with('+')) refuse("}+");  // possessive in one, "once more" in the other
    if (behind.starts_with('?') && inside.find(',') == std::string_view::npos)
      refuse("{n}?");  // lazy in one, optional in the other
    take(end + 1);
  }

  std::string_view regex_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

std::string translated(std::string_view regex) { return Translator(regex).run(); }

namespace {

/// Per-thread match state.
class Workspace {
 public:
  explicit Workspace(std::size_t text_bytes) : limits_(pcre2_match_context_create(nullptr), &pcre2_match_context_free) {
    // Stack of the JIT code, which starts small and grows; the default of 32 KiB overflows on long runs of groups.
    thread_local const std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)> stack(
        pcre2_jit_stack_create(32 << 10, 64 << 20, nullptr), &pcre2_jit_stack_free);
    require<OutOfMemory>(limits_ && stack, "no memory for a match");
    pcre2_jit_stack_assign(limits_.get(), nullptr, stack.get());
    pcre2_set_match_limit(limits_.get(), max_steps(text_bytes));
    pcre2_set_depth_limit(limits_.get(), max_steps(text_bytes));
    pcre2_set_heap_limit(limits_.get(), 1 << 16);  // KiB
  }
  pcre2_match_context* get() const { return limits_.get(); }

 private:
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits_;
};

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(std::string_view regex) : regex_(regex), compiled_(std::make_unique<Compiled>()) {
  require<DataError>(regex.size() <= kMaxPatternBytes, "a pattern of ", regex.size(), " bytes; at most ",
                     kMaxPatternBytes);
  require<DataError>(is_utf8(regex), "the pattern ", files::shown_name(regex), " is not UTF-8");
  const std::string ours = translated(regex);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Multi-line: ^ and $ in the reference are those of Ruby.
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(ours.data()), ours.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  require<DataError>(compiled_->code != nullptr, "the pattern ", files::shown_name(regex, 200),
                     " is no regular expression: ", fault(error), " (near its byte ", offset, ')');
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);  // if unavailable, the interpreter gives the same results
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

  const Workspace workspace(subject.size());
  std::vector<Span> spans;
  if (subject.empty()) return spans;
  std::size_t done = 0;
  std::optional<std::size_t> last_end;  // end of the last match: an empty match right after it is ignored
  for (std::size_t at = 0; at <= subject.size();) {
    // NO_UTF_CHECK: already checked above; otherwise every call would check again from the beginning.
    const int count = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), at,
                                  PCRE2_NO_UTF_CHECK, match.get(), workspace.get());
    if (count == PCRE2_ERROR_NOMATCH) break;
    require<DataError>(count >= 0, "the pattern ", files::shown_name(regex_, 200), " fails at byte ", at,
                       " of a text of ", from.size(), " bytes: ", fault(count),
                       "\n  fix: a pattern that does not try so many ways, or shorter texts");
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    const std::size_t begin = ends[0], end = std::max(ends[0], ends[1]);
    if (begin == end && last_end == end) {
      at += at < subject.size() ? first_code_point(subject.substr(at)).bytes : 1;
      continue;
    }
    if (begin > done) spans.push_back({done, begin, false});
    spans.push_back({begin, end, true});  // an empty match splits too
    done = at = end;
    last_end = end;
  }
  if (done < subject.size()) spans.push_back({done, subject.size(), false});
  return spans;
}

}  // namespace trireme::data
