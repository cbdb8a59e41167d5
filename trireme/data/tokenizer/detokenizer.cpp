#include "trireme/data/tokenizer/detokenizer.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace trireme::data {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      spaces_to_strip_(tokenizer.parts().decoding.strip_at_most) {}

void Detokenizer::append(TokenId id, std::string& out) {
  const Decoding& decoding = tokenizer_.parts().decoding;
  require<DataError>(id < decoding.bytes.size(), "token ", id, " is outside the vocabulary of ", tokenizer_.name(),
                     " (", tokenizer_.vocab_size(), ')');
  if (skip_special_tokens_ && tokenizer_.parts().special[id]) return;
  const std::size_t before = out.size();
  if (!first_) out += decoding.separator;
  const std::string& bytes = decoding.of(id, leads_);
  out += bytes;
  first_ = false;
  const bool stripped = bytes.size() != decoding.bytes[id].size();
  using enum Decoding::Leading;
  if (decoding.leading == first || !bytes.empty() || (decoding.leading == until_stripped && stripped)) leads_ = false;
  if (spaces_to_strip_ == 0) return;
  const std::size_t begin = std::min(out.find_first_not_of(' ', before), out.size());
  const std::size_t strip = std::min(spaces_to_strip_, begin - before);
  out.erase(before, strip);
  spaces_to_strip_ = out.size() == before ? spaces_to_strip_ - strip : 0;
}

}  // namespace trireme::data
