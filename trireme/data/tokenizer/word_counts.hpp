#pragma once
// Word counts of a corpus: the input of tokenizer training.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

class WordCounts {
 public:
  WordCounts();
  void add(std::string_view word, std::uint64_t times = 1);
  void add(const WordCounts& other);

  std::size_t size() const { return words_.size(); }
  std::string_view word(std::size_t i) const { return {bytes_.data() + words_[i].begin, words_[i].bytes}; }
  std::uint64_t count(std::size_t i) const { return words_[i].count; }

 private:
  struct Word {
    std::size_t begin = 0;
    std::uint32_t bytes = 0;
    std::uint64_t hash = 0, count = 0;
  };
  void grow();

  std::string bytes_;  // of all words, concatenated
  std::vector<Word> words_;
  std::vector<std::uint32_t> slots_;  // 1 + index into words_, by hash; 0: free
};

}  // namespace trireme::data
