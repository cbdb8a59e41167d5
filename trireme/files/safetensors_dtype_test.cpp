#include "trireme/files/safetensors_dtype.hpp"

#include <string>

#include <gtest/gtest.h>

namespace trireme::files {
namespace {

TEST(SafetensorsDtype, NamesAndBits) {
  std::string all;
  for (int i = 0; i <= static_cast<int>(SafetensorsDtype::U64); ++i) {
    const auto dtype = static_cast<SafetensorsDtype>(i);
    all += std::string(name(dtype)) + ":" + std::to_string(bits(dtype)) + " ";
    EXPECT_EQ(safetensors_dtype(name(dtype)), dtype);
  }
  EXPECT_EQ(all,
            "BOOL:8 F4:4 F6_E2M3:6 F6_E3M2:6 U8:8 I8:8 F8_E5M2:8 F8_E4M3:8 F8_E8M0:8 F8_E4M3FNUZ:8 F8_E5M2FNUZ:8 "
            "I16:16 U16:16 F16:16 BF16:16 I32:32 U32:32 F32:32 C64:64 F64:64 I64:64 U64:64 ");
  EXPECT_EQ(name(SafetensorsDtype::BF16), std::string("BF16"));
  EXPECT_EQ(safetensors_dtype("f32"), std::nullopt);
  EXPECT_EQ(safetensors_dtype(""), std::nullopt);
}

}  // namespace
}  // namespace trireme::files
