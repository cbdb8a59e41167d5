#pragma once
// Splits a source into samples: windows of seq_len + 1 tokens, or of whole documents, in the training part or the
// held-out part.
#include <cstdint>
#include <vector>

#include "trireme/data/tokens/token_source.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme::data {

struct TokenParts {
  std::vector<Range> train, validation;  // token ranges, ascending; together the whole source, without overlap
};

// Note [Held-out tokens]: validation holds out ranges of tokens, not windows or documents, so that the same tokens are
// held out for any seq_len of a stage, and no validation token is ever trained on, not even as context. The source is
// split into equal segments and one range of each is held out at a position given by the seed: many ranges, so that a
// sorted file is sampled everywhere; but not shorter than kHeldOutRange each, because at the end of a range a document
// is cut and a window may not fit.
inline constexpr std::int64_t kHeldOutRange = 65'536, kMaxHeldOutRanges = 64;

/// Holds out floor(fraction * num_tokens) tokens of the source with index `source`.
TokenParts hold_out(std::int64_t num_tokens, double fraction, std::uint64_t seed, std::size_t source);

/// The tokens of a sample. Fewer than seq_len + 1: the rest of the sample is padding.
struct Window {
  std::int64_t first_token = 0;
  std::int64_t num_tokens = -1;  // -1: seq_len + 1
  bool operator==(const Window&) const = default;
};

/// Window i of a range that begins at b: tokens b + i S ... b + i S + S. Neighbours share one token, the last label of
/// one and the first input of the next, so that every token except a range's first is a label exactly once. The
/// remainder of a range, fewer than S + 1 tokens, is not used.
class Windows {
 public:
  Windows(const std::vector<Range>& parts, std::int64_t seq_len);
  /// As many whole documents in each window as fit in S + 1 tokens, in their order. One that is longer is cut as above,
  /// and what is left of it may share its window with those that follow. Looks at all documents, and keeps 16 bytes for
  /// each window.
  static Windows of_documents(const TokenSource& tokens, const std::vector<Range>& parts, std::int64_t seq_len);

  std::int64_t size() const { return size_; }
  std::int64_t first_token(std::int64_t window) const { return at(window).first_token; }
  Window at(std::int64_t window) const;
  /// Documents that did not fit in a window: only of of_documents().
  std::int64_t num_cut() const { return num_cut_; }

 private:
  struct Part {
    std::int64_t first_window, first_token;
  };
  explicit Windows(std::int64_t seq_len) : seq_len_(seq_len) {}

  std::vector<Part> parts_;       // parts with at least one window
  std::vector<Window> packed_{};  // of of_documents(), instead
  std::int64_t seq_len_, size_ = 0, num_cut_ = 0;
};

}  // namespace trireme::data
