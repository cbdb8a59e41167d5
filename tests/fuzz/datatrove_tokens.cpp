// Fuzz target: datatrove's files.
// input: 1 byte, the size of x.ds.metadata; 2 bytes, the size of x.ds.index (most significant first); both; x.ds
#include "tests/fuzz/token_files.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace trireme;
  static const FuzzFolder folder;
  std::span<const std::uint8_t> input(data, size);
  const std::size_t metadata_bytes = taken_number(input, 1), index_bytes = taken_number(input, 2);
  folder.write("x.ds.metadata", taken(input, metadata_bytes));
  folder.write("x.ds.index", taken(input, index_bytes));
  open_and_read(folder.write("x.ds", input));
  return 0;
}
