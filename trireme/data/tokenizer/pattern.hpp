#pragma once
// The regular expressions of tokenizer files. The only file that uses PCRE2.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// A byte range of a text, and whether it is a match.
struct Span {
  std::size_t begin = 0, end = 0;
  bool matched = false;
  bool operator==(const Span&) const = default;
};

class Pattern {
 public:
  /// `regex` in Oniguruma syntax (the reference). DataError for an invalid regex, and for syntax that the two engines
  /// interpret differently.
  explicit Pattern(std::string_view regex);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  /// Splits `text` into matches and the parts between them. Empty matches split too. Thread-safe. Bytes that are not
  /// UTF-8 are characters that are neither letters nor numbers nor space. DataError if matching exceeds the step limit
  /// for this text.
  std::vector<Span> split(std::string_view text) const;

  const std::string& regex() const { return regex_; }

 private:
  struct Compiled;
  std::string regex_;
  std::unique_ptr<Compiled> compiled_;
};

/// `regex` translated to PCRE2: \s is Unicode's White_Space. Throws as Pattern does. For tests.
std::string translated(std::string_view regex);

}  // namespace trireme::data
