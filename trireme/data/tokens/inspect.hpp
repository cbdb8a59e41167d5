#pragma once
// Statistics of a token data set, for checking that it contains what was intended.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/data/tokens/progress.hpp"
#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

struct TokenReport {
  std::int64_t num_documents = 0;  // with at least one token
  std::int64_t shortest = 0, longest = 0;
  std::uint32_t min_id = 0, max_id = 0;
  std::int64_t counting_tokens = 0;  // that count in the loss
  /// Histogram of document lengths: lengths[i] have 2^i ... 2^(i+1) - 1 tokens.
  std::array<std::int64_t, 63> lengths{};
};

/// Reads the whole data set once; throws Interrupted if the hooks request it.
TokenReport inspect_tokens(const TokenSource& source, const DataHooks& hooks = {});

struct ShownDocument {
  std::int64_t num_tokens = 0;
  std::vector<std::uint32_t> ids;       // a prefix of the document
  std::vector<std::uint8_t> loss_mask;  // of these tokens, if there is a mask
};

/// The first `count` documents, truncated to `max_tokens` each.
std::vector<ShownDocument> first_documents(const TokenSource& source, std::int64_t count, std::int64_t max_tokens);

}  // namespace trireme::data
