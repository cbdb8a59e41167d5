// Fuzz target: llm.c's x.bin and x.tokenizer.
// input: 1 byte, the token that ends documents; 1 byte, the size of x.tokenizer; x.tokenizer; x.bin
#include "tests/fuzz/token_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  static const FuzzFolder folder;
  std::span<const std::uint8_t> input(data, size);
  const auto document_end = static_cast<std::uint32_t>(taken_number(input, 1));
  const std::size_t record_bytes = taken_number(input, 1);
  folder.write("x.tokenizer", taken(input, record_bytes));
  open_and_read(folder.write("x.bin", input), {.document_end = document_end});
  return 0;
}
