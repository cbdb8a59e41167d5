#include "trireme/data/tokenizer/charsmap.hpp"

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/unicode.hpp"

// A unit of the trie has 32 bits: the byte that leads to it (8), whether a rule ends here (1), whether the distance to
// its children counts in 256s (1), and that distance (22). The highest bit marks a unit that is a value: where the
// replacement begins in the texts.

namespace trireme::data {
namespace {

constexpr std::uint32_t kValueBit = std::uint32_t{1} << 31;

std::uint32_t label_of(std::uint32_t unit) { return unit & (kValueBit | 0xFF); }
bool ends_rule(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t distance(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

std::uint32_t little_endian(std::string_view bytes) {
  std::uint32_t out = 0;
  for (std::size_t i = 4; i-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes[i]);
  return out;
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& place) {
  constexpr std::size_t kSizeBytes = 4, kBlock = 1024;
  require<DataError>(bytes.size() > kSizeBytes, place, " has ", bytes.size(), " bytes, too few for rules");
  const std::size_t trie_bytes = little_endian(bytes);
  bytes.remove_prefix(kSizeBytes);
  require<DataError>(trie_bytes >= kBlock && trie_bytes % kBlock == 0 && trie_bytes < bytes.size(), place,
                     ": the trie of ", trie_bytes, " bytes should be blocks of ", kBlock, " within ", bytes.size());
  for (std::size_t at = 0; at < trie_bytes; at += 4) units_.push_back(little_endian(bytes.substr(at)));
  texts_ = bytes.substr(trie_bytes);
  require<DataError>(texts_.ends_with('\0') && is_utf8(texts_), place,
                     ": the replacements are not UTF-8 texts that each end with a NUL");
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const std::uint32_t unit = units_[i];
    const bool is_value = (unit & kValueBit) != 0 && i > 0;
    const bool within = is_value ? (unit & ~kValueBit) < texts_.size() : ((i ^ distance(unit)) | 0xFF) < units_.size();
    require<DataError>(within, place, ": unit ", i, " of the trie leads outside of it");
  }
  require<DataError>(label_of(units_[0]) == 0 && !ends_rule(units_[0]) && distance(units_[0]) != 0, place,
                     ": the trie has no root");
}

/// Calls found(length, value) for each rule that `text` begins with, the shortest first, until it says false.
template <class Found>
void Charsmap::search(std::string_view text, const Found& found) const {
  std::uint32_t at = distance(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    const std::uint32_t unit = units_[at];
    if (label_of(unit) != byte || byte == 0) return;
    at ^= distance(unit);
    if (ends_rule(unit) && !found(i + 1, units_[at] & ~kValueBit)) return;
  }
}

Charsmap::Rule Charsmap::rule(std::size_t length, std::uint32_t value) const {
  if (value >= texts_.size()) return {length, {}};  // of a unit that is no value: a damaged file
  return {length, std::string_view(texts_.data() + value)};
}

std::optional<Charsmap::Rule> Charsmap::longest(std::string_view text) const {
  std::optional<Rule> out;
  search(text, [&](std::size_t length, std::uint32_t value) {
    out = rule(length, value);
    return true;
  });
  return out;
}

std::optional<Charsmap::Rule> Charsmap::shortest(std::string_view text) const {
  std::optional<Rule> out;
  search(text, [&](std::size_t length, std::uint32_t value) {
    out = rule(length, value);
    return false;
  });
  return out;
}

}  // namespace trireme::data
