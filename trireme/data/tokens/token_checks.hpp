#pragma once
// Consistency checks between tokens, tokenizer and model, done before anything is computed.
#include <cstdint>
#include <span>
#include <string>

#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

/// DataError if `source` was made by a different tokenizer. `tokenizer_name` and `fingerprint` are those of the run's
/// tokenizer. No check if either fingerprint is empty.
void check_tokenizer(const TokenSource& source, const std::string& tokenizer_name, const std::string& fingerprint);

/// DataError if one of `ids`, which are tokens [first, first + ids.size()) of `source`, is not below `vocab_size`: on a
/// GPU it would abort the process without saying where it came from.
void check_vocabulary(const TokenSource& source, std::int64_t first, std::span<const std::uint32_t> ids,
                      std::int64_t vocab_size);

}  // namespace trireme::data
