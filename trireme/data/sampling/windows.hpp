#pragma once
// Where the samples of a source lie: windows of seq_len + 1 tokens, in the tokens for training or those held out.
#include <cstdint>
#include <vector>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme::data {

struct TokenParts {
  std::vector<Range> train, validation;  // of tokens, ascending; together the whole source, without overlap
};

// Note [Held-out tokens]: validation takes ranges of tokens, not windows or documents, so that the same tokens are held
// out whatever seq_len a stage has, and no token of validation is ever trained on, not even as context. The source is
// cut into equal segments and a range of each is held out at a place that the seed decides: many ranges, so that a file
// in some order is seen everywhere; but not shorter than kHeldOutRange each, because where a range ends, a document is
// cut and a window may not fit.
inline constexpr std::int64_t kHeldOutRange = 65'536, kMaxHeldOutRanges = 64;

/// Holds out floor(fraction * num_tokens) tokens of the source that is number `source` of the run.
TokenParts hold_out(std::int64_t num_tokens, double fraction, std::uint64_t seed, std::size_t source);

/// Window i of a range that begins at b: tokens b + i S ... b + i S + S. Neighbours share a token, the last label of
/// one and the first input of the next, so that every token but a range's first is a label exactly once. What is left
/// at the end of a range, fewer than S + 1 tokens, is not used.
class Windows {
 public:
  Windows(const std::vector<Range>& parts, std::int64_t seq_len);

  std::int64_t size() const { return size_; }
  std::int64_t first_token(std::int64_t window) const;

 private:
  struct Part {
    std::int64_t first_window, first_token;
  };
  std::vector<Part> parts_;  // those with a window
  std::int64_t seq_len_, size_ = 0;
};

}  // namespace trireme::data
