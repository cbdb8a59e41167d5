#pragma once
// Merges of vocabularies that come without a list of them: every way to build a token from two others is one.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/bpe.hpp"
#include "trireme/data/tokenizer/token_map.hpp"

namespace trireme::data {

class MergesOfTokens {
 public:
  /// `place` is used in messages.
  explicit MergesOfTokens(std::string place) : place_(std::move(place)) {}

  /// `symbol(bytes)`: the id of one half of a token, or kNoToken.
  template <class Symbol>
  void add(std::string_view token, TokenId id, std::uint32_t rank, const Symbol& symbol) {
    constexpr std::size_t kLongest = 1024;  // the cost is quadratic in the token length
    require<DataError>(token.size() <= kLongest, place_, ": token ", id, " has ", token.size(), " bytes; at most ",
                       kLongest, " are allowed");
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const TokenId left = symbol(token.substr(0, cut));
      if (left == kNoToken) continue;
      const TokenId right = symbol(token.substr(cut));
      if (right == kNoToken) continue;
      merges_.push_back({left, right, id});
      ranks_.push_back(rank);
    }
  }

  MergeTable table() const { return {merges_, ranks_}; }

 private:
  std::string place_;
  std::vector<Merge> merges_;
  std::vector<std::uint32_t> ranks_;
};

}  // namespace trireme::data
