// Fuzz target: a tokenizer.json, and text to encode if it loads.
#include "tests/fuzz/tokenizer_use.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  trireme::load_and_use([&] {
    return trireme::data::parts_of_tokenizer_json_text({reinterpret_cast<const char*>(data), size}, "x.json");
  });
  return 0;
}
