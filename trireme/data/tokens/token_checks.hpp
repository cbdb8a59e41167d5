#pragma once
// Whether tokens, tokenizer and model belong together: checked before anything is computed from them.
#include <cstdint>
#include <span>
#include <string>

#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

/// DataError when `source` knows which tokenizer made it and that is another. `tokenizer_name` and `fingerprint` as the
/// tokenizer of the run names itself. Where one of both fingerprints is empty there is nothing to compare.
void check_tokenizer(const TokenSource& source, const std::string& tokenizer_name, const std::string& fingerprint);

/// DataError when one of `ids`, which are tokens [first, first + ids.size()) of `source`, is not below `vocab_size`: on a GPU
/// it would end the process without a word about where it came from.
void check_vocabulary(const TokenSource& source, std::int64_t first, std::span<const std::uint32_t> ids,
                      std::int64_t vocab_size);

}  // namespace trireme::data
