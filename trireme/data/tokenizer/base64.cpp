#include "trireme/data/tokenizer/base64.hpp"

#include <cstdint>

#include "trireme/base/error.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {

std::string from_base64(std::string_view in, const std::string& place) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto fail = [&] { throw DataError(text(place, ": ", files::shown_name(in), " is not base64")); };
  if (in.size() % 4 != 0 || in.empty()) fail();
  std::string out;
  for (std::size_t i = 0; i < in.size(); i += 4) {
    std::uint32_t bits = 0;
    int padding = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = in[i + k];
      const std::size_t digit = kDigits.find(c);
      if (c == '=' && i + 4 == in.size() && k >= 2)
        ++padding;
      else if (digit == std::string_view::npos || padding > 0)
        fail();
      bits = bits << 6 | static_cast<std::uint32_t>(digit == std::string_view::npos ? 0 : digit);
    }
    for (int k = 0; k < 3 - padding; ++k) out += static_cast<char>(bits >> (16 - 8 * k) & 0xFF);
  }
  return out;
}

}  // namespace trireme::data
