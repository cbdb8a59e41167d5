#pragma once
// An arena for many short strings with stable addresses, without one allocation per string. Header only.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::files {

class TextBlocks {
 public:
  static constexpr std::size_t kMaxBytes = 8192;  // an eighth of a block, so less than that is wasted

  /// A copy of `words`, which must not be empty, valid for the lifetime of this object, even after a move.
  std::string_view keep(std::string_view words) {
    require(words.size() <= kMaxBytes, "a text of ", words.size(), " bytes in blocks for at most ", kMaxBytes);
    if (words.size() > left_) {
      blocks_.push_back(std::make_unique_for_overwrite<char[]>(kBlockBytes));
      left_ = kBlockBytes;
    }
    char* const place = blocks_.back().get() + (kBlockBytes - left_);
    std::memcpy(place, words.data(), words.size());
    left_ -= words.size();
    return {place, words.size()};
  }

 private:
  static constexpr std::size_t kBlockBytes = std::size_t{1} << 16;

  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t left_ = 0;  // in the last block
};

}  // namespace trireme::files
