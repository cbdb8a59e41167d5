// Fuzz target: a .tiktoken file, and text to encode if it loads. Input: lines that follow those of the 256 bytes, or,
// after a NUL, all lines.
#include "tests/fuzz/tokenizer_use.hpp"

namespace {

std::string lines_of_bytes() {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t byte = 0; byte < 256; ++byte)
    out += trireme::text(kDigits[byte >> 2], kDigits[(byte & 3) << 4], "== ", byte, '\n');
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string bytes = lines_of_bytes();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string lines = input.starts_with('\0') ? std::string(input.substr(1)) : bytes + std::string(input);
  trireme::load_and_use([&] { return trireme::data::parts_of_tiktoken_text(lines, "x.llama3.tiktoken"); });
  return 0;
}
