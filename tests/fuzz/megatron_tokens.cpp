// Fuzz target: Megatron's x.idx.   input: 2 bytes, the size of x.bin (most significant first); x.idx
#include "tests/fuzz/token_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  static const FuzzFolder folder;
  std::span<const std::uint8_t> input(data, size);
  folder.write("x.bin", std::vector<std::uint8_t>(taken_number(input, 2)));
  open_and_read(folder.write("x.idx", input));
  return 0;
}
