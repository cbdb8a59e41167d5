#pragma once
// Parsers for the components of a tokenizer.json: normalizers, pre-tokenizers, post-processor, decoder.
#include <string>
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

// Shared by the parsers.
/// Calls `one` for each component of a Sequence (stored under `key`), or for a single component.
template <class One>
void for_each_step(const JsonView& json, const char* key, const One& one) {
  if (json.is_null()) return;
  if (json.at("type").string() != "Sequence") return one(json, json.at("type").string());
  json.only({"type", key});
  const JsonView list = json.at(key);
  for (std::size_t i = 0; i < list.list_size(); ++i) for_each_step(list.at(i), key, one);
}

/// A literal as a regular expression.
std::string literal_pattern(std::string_view literal);
/// {"Regex": ...} or {"String": ...}
Pattern compiled_pattern(const JsonView& json);
Metaspace read_metaspace(const JsonView& json);

}  // namespace trireme::data
