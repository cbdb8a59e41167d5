#pragma once
// Many short texts that stay where they are, without an allocation each. Header only.
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme::files {

class TextBlocks {
 public:
  static constexpr std::size_t kMaxBytes = 8192;  // an eighth of a block, which wastes less than that

  /// A copy of `words`, which is not empty, that lives as long as this object, wherever it is moved to.
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
