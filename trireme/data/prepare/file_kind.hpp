#pragma once
// What a file holds, decided by its first bytes: names lie, and tokens of a picture only show in the loss.
#include <string>
#include <string_view>

namespace trireme::data {

enum class Compression { none, gzip, zstd };
/// By the first bytes of a file.
Compression compression_of(std::string_view head);

struct NotText {
  std::string what;  // "a parquet file"; empty: it is text
  std::string fix;   // how to make text of it

  explicit operator bool() const { return !what.empty(); }
};

// Note [What is text]: known formats by their first bytes; anything with a NUL; and anything that is not UTF-8 and has
// control characters that texts do not have. So Latin-1 is text, and so is UTF-8 with escape sequences.
/// `head`: the beginning of the file, decompressed; `whole`: that is all of it, and its last character is not cut.
NotText what_is_not_text(std::string_view head, bool whole);

inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8: not part of the text

/// How many bytes what_is_not_text should see.
inline constexpr std::size_t kHeadBytes = std::size_t{1} << 16;

}  // namespace trireme::data
