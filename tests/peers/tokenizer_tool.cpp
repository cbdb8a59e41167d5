// A tokenizer for Python tests: texts in, tokens out, both prefixed with their lengths as 32-bit numbers.
//   tokenizer_tool encode TOKENIZER [special] [back]    special: with the file's post-processor; back: then also
//                                                       decode(encode(text))
//   tokenizer_tool decode TOKENIZER [skip]              lists of tokens in, texts out; skip: without special tokens
//   tokenizer_tool stream TOKENIZER                     the same, token by token
//   tokenizer_tool pieces TOKENIZER                     like encode, with the regular expressions only
//   tokenizer_tool train PATTERN VOCAB_SIZE             texts in, a tokenizer.json out; PATTERN: gpt2, llama3 or qwen2
#include <cstdint>
#include <iostream>
#include <span>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/bpe_train.hpp"
#include "trireme/data/tokenizer/stream_decoder.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace {

using namespace trireme;

bool read_number(std::uint32_t& out) {
  return static_cast<bool>(std::cin.read(reinterpret_cast<char*>(&out), sizeof out));
}

template <class Element, class List>
void write_list(const List& list) {
  const auto n = static_cast<std::uint32_t>(list.size());
  std::cout.write(reinterpret_cast<const char*>(&n), sizeof n);
  std::cout.write(reinterpret_cast<const char*>(list.data()),
                  static_cast<std::streamsize>(list.size() * sizeof(Element)));
}

std::string streamed(const data::Tokenizer& tokenizer, std::span<const data::TokenId> ids) {
  data::StreamDecoder decoder(tokenizer);
  std::string out;
  for (const data::TokenId id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

int train(const std::string& pattern, const std::string& vocab_size) {
  data::BpeTrainOptions options;
  options.pattern = pattern == "gpt2"    ? data::KnownPattern::gpt2
                    : pattern == "qwen2" ? data::KnownPattern::qwen2
                                         : data::KnownPattern::llama3;
  options.vocab_size = std::stoll(vocab_size);
  data::WordCounts counts;
  for (std::uint32_t n = 0; read_number(n);) {
    std::string text(n, '\0');
    std::cin.read(text.data(), n);
    data::count_words(text, options.pattern, counts);
  }
  std::cout << data::tokenizer_json(data::train_bpe(counts, options));
  return 0;
}

int run(int argc, char** argv) {
  const std::string word = argc > 2 ? argv[1] : "";
  if (word == "train" && argc == 4) return train(argv[2], argv[3]);
  bool special = false, back = false, skip = false;
  for (int i = 3; i < argc; ++i) {
    special |= argv[i] == std::string("special");
    back |= argv[i] == std::string("back");
    skip |= argv[i] == std::string("skip");
  }
  require<ConfigError>(word == "encode" || word == "decode" || word == "stream" || word == "pieces",
                       "see the head of the source");
  data::Tokenizer tokenizer = data::Tokenizer::load(argv[2]);
  if (word == "pieces") {
    auto parts = std::filesystem::path(argv[2]).extension() == ".tiktoken" ? data::parts_of_tiktoken(argv[2])
                                                                           : data::parts_of_tokenizer_json(argv[2]);
    parts->fast = data::KnownPattern::none;
    tokenizer = data::Tokenizer(std::move(parts));
  }
  const bool texts_in = word == "encode" || word == "pieces";
  for (std::uint32_t n = 0; read_number(n);) {
    if (texts_in) {
      std::string text(n, '\0');
      std::cin.read(text.data(), n);
      const auto ids = tokenizer.encode(text, special);
      write_list<data::TokenId>(ids);
      if (back) write_list<char>(tokenizer.decode(ids));
    } else {
      std::vector<data::TokenId> ids(n);
      std::cin.read(reinterpret_cast<char*>(ids.data()), static_cast<std::streamsize>(n * sizeof(data::TokenId)));
      write_list<char>(word == "stream" ? streamed(tokenizer, ids) : tokenizer.decode(ids, skip));
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return static_cast<int>(error.exit_code());
  }
}
