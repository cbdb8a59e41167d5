#pragma once
// CRC-32C (Castagnoli), the checksum of TFRecord files (TensorBoard event files).
#include <cstdint>
#include <string_view>

namespace trireme::metrics {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace trireme::metrics
