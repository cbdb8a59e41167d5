#include "trireme/data/tokenizer_parts.hpp"

namespace trireme {
namespace {

void bytes_to_symbols(const BpeModel& model, std::string_view word, std::vector<TokenId>& out) {
  for (const char byte : word)
    if (const TokenId id = model.byte_ids[static_cast<unsigned char>(byte)]; id != kNoToken)
      out.push_back(id);
    else if (model.unknown && !(model.fuse_unknown && !out.empty() && out.back() == *model.unknown))
      out.push_back(*model.unknown);
}

bool append_fallbacks(const BpeModel& model, std::string_view character, std::vector<TokenId>& out) {
  for (const char byte : character)
    if (model.fallbacks[static_cast<unsigned char>(byte)] == kNoToken) return false;
  for (const char byte : character) out.push_back(model.fallbacks[static_cast<unsigned char>(byte)]);
  return true;
}

// An unknown character waits until it is known whether the next one is unknown, too; the order of what is written is the reference's.
void characters_to_symbols(const BpeModel& model, std::string_view word, std::vector<TokenId>& out) {
  bool waiting = false;
  const auto flush = [&] {
    if (waiting) out.push_back(*model.unknown);
    waiting = false;
  };
  while (!word.empty()) {
    const std::string_view character = word.substr(0, first_code_point(word).bytes);
    word.remove_prefix(character.size());
    if (const auto known = model.words.find(character); known != model.words.end()) {
      flush();
      out.push_back(known->second);
      continue;
    }
    if (model.byte_fallback && append_fallbacks(model, character, out)) continue;
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
  byte_level ? bytes_to_symbols(*this, word, symbols) : characters_to_symbols(*this, word, symbols);
  merges.apply(symbols);
  out.insert(out.end(), symbols.begin(), symbols.end());
}

}  // namespace trireme
