// Times tokenizing and training in this process, for bench/against_tokenizers.py. Texts: a file of texts prefixed with
// their lengths.
//   trireme_tokenizer_bench encode TOKENIZER TEXTS [ROUNDS]      seconds of each round, then the number of tokens
//   trireme_tokenizer_bench batch TOKENIZER TEXTS THREADS        seconds with this many threads
//   trireme_tokenizer_bench train PATTERN VOCAB_SIZE TEXTS OUT   seconds, and the tokenizer.json in OUT
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/bpe_train.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"

namespace {

using namespace trireme;

std::vector<std::string> read_texts(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> texts;
  for (std::uint32_t n = 0; file.read(reinterpret_cast<char*>(&n), sizeof n);) {
    texts.emplace_back(n, '\0');
    file.read(texts.back().data(), n);
  }
  require<DataError>(!texts.empty(), path, " has no texts");
  return texts;
}

template <class Work>
double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

int run(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "";
  if (word == "encode" && argc >= 4) {
    const data::Tokenizer tokenizer = data::Tokenizer::load(argv[2]);
    const auto texts = read_texts(argv[3]);
    std::size_t tokens = 0;
    for (int round = 0; round < (argc > 4 ? std::stoi(argv[4]) : 1); ++round) {
      tokens = 0;
      std::cout << seconds([&] {
        for (const std::string& text : texts) tokens += tokenizer.encode(text).size();
      }) << '\n';
    }
    std::cout << tokens << '\n';
    return 0;
  }
  if (word == "batch" && argc == 5) {
    const data::Tokenizer tokenizer = data::Tokenizer::load(argv[2]);
    const auto texts = read_texts(argv[3]);
    std::cout << seconds([&] { tokenizer.encode_batch(texts, false, std::stoi(argv[4])); }) << '\n';
    return 0;
  }
  if (word == "train" && argc == 6) {
    data::BpeTrainOptions options;
    options.pattern = argv[2] == std::string("gpt2") ? data::KnownPattern::gpt2 : data::KnownPattern::llama3;
    options.vocab_size = std::stoll(argv[3]);
    const auto texts = read_texts(argv[4]);
    data::TrainedBpe trained;
    std::cout << seconds([&] {
      data::WordCounts counts;
      for (const std::string& text : texts) data::count_words(text, options.pattern, counts);
      trained = data::train_bpe(counts, options);
    }) << '\n';
    std::ofstream(argv[5]) << data::tokenizer_json(trained);
    return 0;
  }
  std::cerr << "see the head of the source\n";
  return 64;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv); }
