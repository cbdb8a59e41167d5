#include "trireme/data/tokenizer/byte_level_parts.hpp"

#include <algorithm>

#include "trireme/data/tokenizer/byte_alphabet.hpp"
#include "trireme/data/tokenizer/merges_of_tokens.hpp"

namespace trireme::data {

std::unique_ptr<Tokenizer::Parts> byte_level_parts(const std::string& name, std::string_view pattern,
                                                   const NumberedTokens& tokens, const NumberedTokens& specials) {
  auto parts = std::make_unique<Tokenizer::Parts>();
  parts->name = name;
  parts->expect_tokens(tokens.size());
  if (specials.back().second < 1'000'000)  // of known models, above the ranks
    parts->most_tokens = std::max<std::size_t>(parts->most_tokens, specials.back().second + 1);
  std::string identity = text(pattern, '\n');
  BpeModel model;
  for (const auto& [bytes, id] : tokens) {
    parts->set_text(id, spelt_as_characters(bytes));
    model.words.emplace(bytes, id);
    if (bytes.size() == 1) model.byte_ids[static_cast<unsigned char>(bytes[0])] = id;
  }
  std::vector<AddedToken> added;
  for (const auto& [content, id] : specials) {
    parts->set_text(id, content);
    added.push_back({.id = id, .content = content, .special = true});
  }
  for (int byte = 0; byte < 256; ++byte)
    require<DataError>(model.byte_ids[static_cast<std::size_t>(byte)] != kNoToken, name, ": no token for the byte ",
                       byte, "; text with it would be lost\n  fix: the file is damaged, fetch it again");
  parts->decoding.bytes = parts->texts;
  parts->special.assign(parts->texts.size(), false);
  for (const auto& [bytes, id] : tokens) parts->decoding.bytes[id] = bytes;
  for (const AddedToken& token : added) parts->special[token.id] = true;
  for (const std::string& token : parts->texts) identity += token + '\n';
  for (const char* end : {"<|endoftext|>", "<|end_of_text|>"})
    if (const auto found = parts->ids.find(end); found != parts->ids.end()) parts->end_of_document = found->second;
  parts->added = AddedTokenFinder(std::move(added));
  model.byte_level = true;
  model.whole_words_first = true;
  parts->fast = known_pattern(pattern);
  if (!pattern.empty()) parts->pre_tokenizers.emplace_back(SplitText{Pattern(pattern), SplitBehavior::isolated, false});
  MergesOfTokens merges(name);
  for (const auto& [bytes, id] : tokens)
    merges.add(bytes, id, id, [&](std::string_view half) {
      const auto found = model.words.find(half);
      return found == model.words.end() ? kNoToken : found->second;
    });
  model.merges = merges.table();
  parts->model = std::move(model);
  parts->fingerprint = hash_text(identity);
  return parts;
}

}  // namespace trireme::data
