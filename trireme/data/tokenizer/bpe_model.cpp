#include "trireme/data/tokenizer/bpe_model.hpp"

#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme::data {
namespace {

TokenId symbol_of(const BpeModel& model, std::string_view symbol) {
  if (model.byte_level) return model.byte_ids[static_cast<unsigned char>(symbol[0])];
  const auto known = model.words.find(symbol);
  return known == model.words.end() ? kNoToken : known->second;
}

// An unknown symbol is held back until the next one shows whether to fuse them; output order as in the reference.
void append_symbols(const BpeModel& model, std::string_view word, std::vector<TokenId>& out) {
  bool waiting = false;
  const auto flush = [&] {
    if (waiting) out.push_back(*model.unknown);
    waiting = false;
  };
  while (!word.empty()) {
    const std::string_view symbol = word.substr(0, model.byte_level ? 1 : first_code_point(word).bytes);
    word.remove_prefix(symbol.size());
    if (const TokenId id = symbol_of(model, symbol); id != kNoToken) {
      flush();
      out.push_back(id);
      continue;
    }
    if (model.byte_fallback && model.fallbacks.append(symbol, out)) continue;
    if (!model.unknown) continue;
    if (!model.fuse_unknown) flush();
    waiting = true;
  }
  flush();
}

}  // namespace

void BpeModel::append(std::string_view word, std::vector<TokenId>& out) const {
  if (whole_words_first)
    if (const auto known = words.find(word); known != words.end()) {
      out.push_back(known->second);
      return;
    }
  std::vector<TokenId> symbols;
  symbols.reserve(word.size());
  append_symbols(*this, word, symbols);
  merges.apply(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

}  // namespace trireme::data
