#include "trireme/base/zstd.hpp"

#include <algorithm>
#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

// "hello zstd, hello again\n" with a checksum, and 3,000,000 times 'a' without one, both by the program zstd.
const std::string kHello = "\x28\xb5\x2f\xfd\x04\x68\xc1\x00\x00hello zstd, hello again\n\xc6\xc6\xaf\x46"s;
std::string many() {
  std::string frame = "\x28\xb5\x2f\xfd\x00\x68\x4c\x00\x00\x08\x61\x01\x00\xfc\xff\x39\x10\x02"s;
  for (int i = 0; i < 21; ++i) frame += "\x02\x00\x10\x61"s;
  return frame + "\x03\x36\x0e\x61"s;
}

/// Decompressed `step` bytes at a time, on both sides.
std::string decompressed(std::string_view bytes, std::size_t step) {
  const auto zstd = unzstd("x.zst");
  std::string out, part(step, '\0');
  for (bool ended = false; !ended;) {
    std::string_view in = bytes.substr(0, step);
    ended = in.empty();
    bytes.remove_prefix(in.size());
    std::size_t got = 0;
    do {
      got = zstd->next(in, part);
      out.append(part, 0, got);
    } while (!in.empty() || (ended && got > 0));
  }
  zstd->finish();
  return out;
}

std::string fault(const std::string& bytes) {
  try {
    decompressed(bytes, 7);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(Zstd, FramesAreOneTextInStepsOfAnySize) {
  if (!has_zstd()) GTEST_SKIP() << "libzstd-dev was not installed when this was built (fix: tools/setup)";
  const std::string text = "hello zstd, hello again\n";
  for (std::size_t step = 1; step < 60; ++step) ASSERT_EQ(decompressed(kHello + kHello, step), text + text) << step;
  const std::string three = decompressed(many() + kHello, 4096);
  EXPECT_TRUE(three == std::string(3'000'000, 'a') + text) << three.size();
}

TEST(Zstd, FaultsNameTheFile) {
  if (!has_zstd()) {
    EXPECT_THAT(fault(kHello), HasSubstr("x.zst: is compressed with zstd, and this trireme was built without libzstd"));
    return;
  }
  EXPECT_THAT(fault(kHello.substr(0, 20)), HasSubstr("x.zst: cut short: the file ends after 20 bytes"));
  EXPECT_THAT(fault(""), HasSubstr("x.zst: cut short"));
  std::string wrong = kHello;
  wrong.back() ^= 1;
  EXPECT_THAT(fault(wrong), HasSubstr("x.zst: is not valid zstd"));
}

}  // namespace
}  // namespace trireme
