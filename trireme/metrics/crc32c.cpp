#include "trireme/metrics/crc32c.hpp"

#include <array>

namespace trireme::metrics {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t remainder = i;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ ((remainder & 1) != 0 ? 0x82F63B78 : 0);
    table[i] = remainder;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kTable = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t remainder = ~std::uint32_t{0};
  for (const char c : bytes) remainder = remainder >> 8 ^ kTable[(remainder ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~remainder;
}

}  // namespace trireme::metrics
