#include "trireme/data/tokenizer/word_counts.hpp"

#include <xxhash.h>

#include "trireme/base/error.hpp"

namespace trireme::data {

WordCounts::WordCounts() : slots_(1 << 12) {}

void WordCounts::add(std::string_view word, std::uint64_t times) {
  const std::uint64_t hash = XXH3_64bits(word.data(), word.size());
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  for (; slots_[at] != 0; at = (at + 1) & mask) {
    Word& known = words_[slots_[at] - 1];
    if (known.hash == hash && known.bytes == word.size() &&
        std::string_view(bytes_.data() + known.begin, known.bytes) == word) {
      known.count += times;
      return;
    }
  }
  require<DataError>(words_.size() < 0xFFFFFFFE && word.size() < 0xFFFFFFFF,
                     "a corpus with more than 2^32 different words");
  words_.push_back({bytes_.size(), static_cast<std::uint32_t>(word.size()), hash, times});
  bytes_ += word;
  slots_[at] = static_cast<std::uint32_t>(words_.size());
  if (words_.size() * 2 > slots_.size()) grow();
}

void WordCounts::add(const WordCounts& other) {
  for (std::size_t i = 0; i < other.size(); ++i) add(other.word(i), other.count(i));
}

void WordCounts::grow() {
  slots_.assign(slots_.size() * 2, 0);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    std::size_t at = words_[i].hash & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = static_cast<std::uint32_t>(i + 1);
  }
}

}  // namespace trireme::data
