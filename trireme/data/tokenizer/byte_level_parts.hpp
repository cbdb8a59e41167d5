#pragma once
// Tokenizers of files with nothing but tokens that are bytes: .tiktoken, tekken.json.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace trireme::data {

using NumberedTokens = std::vector<std::pair<std::string, TokenId>>;

/// Words by `pattern`; `tokens`, of which the smaller id is merged first; special tokens. DataError if a byte has no
/// token.
std::unique_ptr<Tokenizer::Parts> byte_level_parts(const std::string& name, std::string_view pattern,
                                                   const NumberedTokens& tokens, const NumberedTokens& specials);

}  // namespace trireme::data
