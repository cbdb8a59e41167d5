#include "trireme/metrics/crc32c.hpp"

#include <string>

#include <gtest/gtest.h>

namespace trireme::metrics {
namespace {

// The check value of the catalogue of CRCs, and the vectors of RFC 3720, B.4 (there with the bytes of the CRC swapped).
TEST(Crc32c, KnownAnswers) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

}  // namespace
}  // namespace trireme::metrics
