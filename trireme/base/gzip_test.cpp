#include "trireme/base/gzip.hpp"

#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

std::string gunzip(const std::string& bytes) {
  z_stream stream{};
  inflateInit2(&stream, 15 + 16);  // + 16: only gzip's own header will do
  std::string out(10'000'000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  EXPECT_EQ(stream.avail_in, 0U);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST(Gzip, ComesBackTheSame) {
  EXPECT_EQ(gunzip(gzip("")), "");
  EXPECT_EQ(gunzip(gzip("trireme")), "trireme");
}

TEST(Gzip, TakesMoreThanOneBufferOfOutput) {
  const Stream noise(1, "noise");
  std::string bytes;
  for (std::uint64_t i = 0; i < 300'000; ++i) bytes += static_cast<char>(noise.below(i, 256));
  EXPECT_EQ(gunzip(gzip(bytes)), bytes);
}

TEST(Gzip, Compresses) { EXPECT_LT(gzip(std::string(1'000'000, 'a')).size(), 10'000U); }

}  // namespace
}  // namespace trireme
