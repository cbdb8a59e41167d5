#pragma once
// A token source in memory, for tests.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/token_source.hpp"

namespace trireme {

class MemoryTokens final : public data::TokenSource {
 public:
  /// `ends`: end offsets of the documents, the last at the end of the tokens; empty: one document. Empty `mask`: all
  /// count.
  explicit MemoryTokens(std::string name, std::vector<std::uint32_t> tokens, std::vector<std::int64_t> ends = {},
                        std::vector<std::uint8_t> mask = {})
      : name_(std::move(name)), tokens_(std::move(tokens)), ends_(std::move(ends)), mask_(std::move(mask)) {
    if (ends_.empty()) ends_.push_back(num_tokens());
  }

  const std::string& name() const override { return name_; }
  std::int64_t num_tokens() const override { return static_cast<std::int64_t>(tokens_.size()); }
  std::int64_t num_documents() const override { return static_cast<std::int64_t>(ends_.size()); }
  void read(std::int64_t first, std::span<std::uint32_t> out) const override { copy(tokens_, first, out); }
  std::vector<std::int64_t> document_ends(std::int64_t first, std::int64_t count) const override {
    std::vector<std::int64_t> found;
    for (const std::int64_t end : ends_)
      if (first < end && end <= first + count) found.push_back(end);
    return found;
  }
  bool has_loss_mask() const override { return !mask_.empty(); }
  void read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const override { copy(mask_, first, out); }

 private:
  template <class T>
  void copy(const std::vector<T>& from, std::int64_t first, std::span<T> out) const {
    require<DataError>(0 <= first && first + static_cast<std::int64_t>(out.size()) <= num_tokens(), name_, ": tokens ",
                       first, " and ", out.size(), " on, of ", num_tokens());
    std::copy_n(from.begin() + first, out.size(), out.begin());
  }

  std::string name_;
  std::vector<std::uint32_t> tokens_;
  std::vector<std::int64_t> ends_;
  std::vector<std::uint8_t> mask_;
};

/// Token i is i.
inline std::shared_ptr<const data::TokenSource> counted_tokens(std::int64_t count,
                                                               const std::string& name = "data/count.ds") {
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0U);
  return std::make_shared<MemoryTokens>(name, std::move(tokens));
}

}  // namespace trireme
