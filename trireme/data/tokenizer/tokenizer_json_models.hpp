#pragma once
// The models of a tokenizer.json: BPE, Unigram, WordPiece.
#include <string>

#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace trireme::data {

/// Fills the vocabulary and the model of `parts`, and appends what determines tokens to `identity`. `byte_level`: words
/// are bytes, spelt as characters.
void read_model(const JsonView& model, Tokenizer::Parts& parts, bool byte_level, std::string& identity);

}  // namespace trireme::data
