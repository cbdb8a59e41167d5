#pragma once
// The regular expressions of tokenizer files. The only file that sees PCRE2.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// A piece of a text, by bytes, and whether the pattern matched it.
struct Span {
  std::size_t begin = 0, end = 0;
  bool matched = false;
  bool operator==(const Span&) const = default;
};

class Pattern {
 public:
  /// `regex` as Oniguruma (the reference) reads it. DataError for what is wrong in it, and for what the two engines read differently.
  explicit Pattern(std::string_view regex);
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;
  ~Pattern();

  /// `text` cut into matches and what is between them. Matches may be empty: they cut all the same. Several threads may ask at once. Bytes that are not UTF-8 are
  /// characters that are neither letters nor numbers nor space. DataError when the pattern needs too long for this text.
  std::vector<Span> split(std::string_view text) const;

  const std::string& regex() const { return regex_; }

 private:
  struct Compiled;
  std::string regex_;
  std::unique_ptr<Compiled> compiled_;
};

/// `regex` as PCRE2 must be told it: \s is Unicode's White_Space. Throws as Pattern does. For tests.
std::string translated(std::string_view regex);

}  // namespace trireme::data
