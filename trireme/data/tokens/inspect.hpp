#pragma once
// What is in a data set: the numbers that show whether it is what one wanted.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/data/tokens/progress.hpp"
#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

struct TokenReport {
  std::int64_t num_documents = 0;  // with a token at least
  std::int64_t shortest = 0, longest = 0;
  std::uint32_t min_id = 0, max_id = 0;
  std::int64_t counting_tokens = 0;  // in the loss
  /// Documents by length: lengths[i] have 2^i ... 2^(i+1) - 1 tokens.
  std::array<std::int64_t, 63> lengths{};
};

/// Reads all of it once; Interrupted when the hooks say so.
TokenReport inspect_tokens(const TokenSource& source, const DataHooks& hooks = {});

struct ShownDocument {
  std::int64_t num_tokens = 0;
  std::vector<std::uint32_t> ids;       // the first of them
  std::vector<std::uint8_t> loss_mask;  // of these, where there is one
};

/// The first `count` documents, up to `max_tokens` of each.
std::vector<ShownDocument> first_documents(const TokenSource& source, std::int64_t count, std::int64_t max_tokens);

}  // namespace trireme::data
