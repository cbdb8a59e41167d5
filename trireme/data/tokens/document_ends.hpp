#pragma once
// Document boundaries of a token file: from an index on disk, or from an end-of-document token.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/data/tokens/token_array.hpp"

namespace trireme::data {

class DocumentEnds {
 public:
  virtual ~DocumentEnds() = default;
  virtual std::int64_t count() const = 0;
  /// The ends e with first < e <= first + count, ascending, without duplicates.
  virtual std::vector<std::int64_t> within(std::int64_t first, std::int64_t count) const = 0;
  /// The number of documents that end at or before `position`: the index of this token's document, from 0.
  virtual std::int64_t until(std::int64_t position) const = 0;
};

/// The ends stay on disk, because there may be billions of them; every 512th is kept in memory for searching.
class IndexedEnds : public DocumentEnds {
 public:
  static constexpr std::int64_t kStride = 512;
  /// Loads ends [first, first + out.size()) of the index.
  using Load = std::function<void(std::int64_t first, std::span<std::int64_t> out)>;

  /// Reads all of them once. Throws DataError unless they are ascending (an empty document repeats an end) and the last
  /// one is `num_tokens`; `shown` is the index's name for messages.
  IndexedEnds(std::int64_t count, std::int64_t num_tokens, Load load, const std::string& shown);

  std::int64_t count() const override { return count_; }
  std::vector<std::int64_t> within(std::int64_t first, std::int64_t count) const override;
  std::int64_t until(std::int64_t position) const override;

 private:
  std::vector<std::int64_t> block(std::int64_t number) const;

  std::int64_t count_;
  Load load_;
  std::vector<std::int64_t> firsts_;  // first end of each block
};

/// For files without an index: a document ends after each token `mark`, and at the end of the file. Without a mark the
/// file is one document. Reads lazily; count() with a mark then reads the whole file.
class MarkedEnds : public DocumentEnds {
 public:
  MarkedEnds(std::shared_ptr<const TokenArray> tokens, std::optional<std::uint32_t> mark)
      : tokens_(std::move(tokens)), mark_(mark) {}

  std::int64_t count() const override;
  std::vector<std::int64_t> within(std::int64_t first, std::int64_t count) const override;
  std::int64_t until(std::int64_t position) const override;

 private:
  void each_end(std::int64_t first, std::int64_t count, const std::function<void(std::int64_t)>& body) const;

  std::shared_ptr<const TokenArray> tokens_;
  std::optional<std::uint32_t> mark_;
  mutable std::once_flag counted_;
  mutable std::int64_t count_ = 0;
};

}  // namespace trireme::data
