#pragma once
// Parsers for the components of a tokenizer.json: normalizers, pre-tokenizers, post-processor, decoder.
#include <optional>
#include <string_view>
#include <vector>

#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace trireme::data {

std::vector<Normalizer> read_normalizers(const JsonView& json);

struct PreTokenizers {
  std::vector<PreTokenizer> steps;
  bool byte_level = false;
  KnownPattern fast = KnownPattern::none;
};
PreTokenizers read_pre_tokenizers(const JsonView& json);

/// Fills `before` and `behind`.
void read_post_processor(const JsonView& json, Tokenizer::Parts& parts);
/// The bytes of every token of `parts`.
Decoding read_decoding(const JsonView& json, const Tokenizer::Parts& parts);

/// "<0xE2>" -> 0xE2
std::optional<unsigned char> fallback_byte(std::string_view token);

}  // namespace trireme::data
