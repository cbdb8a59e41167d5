// Fuzz target: a SentencePiece .model file, and text to encode if it loads.
#include "tests/fuzz/tokenizer_use.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::load_and_use([&] {
    return trireme::data::parts_of_sentencepiece_bytes({reinterpret_cast<const char*>(data), size}, "x.model");
  });
  return 0;
}
