// Fuzz target: a tekken.json, and text to encode if it loads. Input: the tokens that follow those of the 256 bytes
// (each after a comma), a NUL, and the rest of the file; or, without a NUL, the whole file.
#include "tests/fuzz/tokenizer_use.hpp"

namespace {

std::string tokens_of_bytes() {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t byte = 0; byte < 256; ++byte)
    out += trireme::text(byte == 0 ? "" : ",", R"({"rank":)", byte, R"(,"token_bytes":")", kDigits[byte >> 2],
                         kDigits[(byte & 3) << 4], "==\"}");
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string bytes = tokens_of_bytes();
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = input.find('\0');
  const std::string json = end == std::string_view::npos ? std::string(input)
                                                         : trireme::text(R"({"vocab":[)", bytes, input.substr(0, end),
                                                                         "],", input.substr(end + 1));
  trireme::load_and_use([&] { return trireme::data::parts_of_tekken_text(json, "tekken.json"); });
  return 0;
}
