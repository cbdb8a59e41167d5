#include <nlohmann/json.hpp>

#include "trireme/data/tokenizer/bpe_train.hpp"
#include "trireme/data/tokenizer/byte_alphabet.hpp"

namespace trireme::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

OrderedJson pre_tokenizer(KnownPattern pattern) {
  if (pattern == KnownPattern::gpt2) return byte_level(true);
  const std::string_view regex = pattern == KnownPattern::qwen2 ? kQwen2Pattern : kLlama3Pattern;
  const OrderedJson split = {
      {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(false)}}};
}

}  // namespace

std::string tokenizer_json(const TrainedBpe& trained) {
  const std::size_t specials = trained.options.special_tokens.size();
  const auto spelling = [&](TokenId id) {
    return id < specials ? trained.tokens[id] : spelt_as_characters(trained.tokens[id]);
  };
  OrderedJson added = OrderedJson::array(), vocab = OrderedJson::object(), merges = OrderedJson::array();
  for (TokenId id = 0; id < specials; ++id)
    added.push_back({{"id", id},
                     {"content", trained.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  // push_back, since emplace would search all existing entries each time.
  auto& entries = vocab.get_ref<OrderedJson::object_t&>();
  for (TokenId id = 0; id < trained.tokens.size(); ++id) entries.push_back({spelling(id), id});
  for (const Merge& merge : trained.merges) merges.push_back({spelling(merge.left), spelling(merge.right)});
  const OrderedJson json = {{"version", "1.0"},
                            {"truncation", nullptr},
                            {"padding", nullptr},
                            {"added_tokens", added},
                            {"normalizer", nullptr},
                            {"pre_tokenizer", pre_tokenizer(trained.options.pattern)},
                            {"post_processor", nullptr},
                            {"decoder", byte_level(true)},
                            {"model",
                             {{"type", "BPE"},
                              {"dropout", nullptr},
                              {"unk_token", nullptr},
                              {"continuing_subword_prefix", nullptr},
                              {"end_of_word_suffix", nullptr},
                              {"fuse_unk", false},
                              {"byte_fallback", false},
                              {"ignore_merges", false},
                              {"vocab", vocab},
                              {"merges", merges}}}};
  return json.dump(1) + '\n';
}

}  // namespace trireme::data
