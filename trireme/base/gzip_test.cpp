#include "trireme/base/gzip.hpp"

#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

std::string gunzip(const std::string& bytes) {
  z_stream stream{};
  inflateInit2(&stream, 15 + 16);  // + 16: accepts only gzip's header
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
  const RandomStream noise(1, "noise");
  std::string bytes;
  for (std::uint64_t i = 0; i < 300'000; ++i) bytes += static_cast<char>(noise.below(i, 256));
  EXPECT_EQ(gunzip(gzip(bytes)), bytes);
}

TEST(Gzip, Compresses) { EXPECT_LT(gzip(std::string(1'000'000, 'a')).size(), 10'000U); }

/// All of `bytes`, `step` bytes of input and of output at a time.
std::string gunzipped(const std::string& bytes, std::size_t step) {
  Gunzip gunzip("x.gz");
  std::string out, part(step, '\0');
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    std::string_view in = std::string_view(bytes).substr(at, step);
    while (!in.empty()) out.append(part, 0, gunzip.next(in, part));
  }
  gunzip.finish();
  return out;
}

TEST(Gunzip, UndoesGzipInPiecesOfAnySize) {
  const std::string words = "one two three " + std::string(5'000, 'x') + " four";
  for (const std::size_t step : {1, 7, 100, 100'000}) EXPECT_EQ(gunzipped(gzip(words), step), words) << step;
}

TEST(Gunzip, TextsOneBehindTheOtherAreOneAndZerosFillUp) {
  EXPECT_EQ(gunzipped(gzip("one ") + gzip("two") + std::string(10, '\0'), 5), "one two");
}

std::string fault_of(const std::string& bytes) {
  try {
    gunzipped(bytes, 64);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(Gunzip, DamageIsNamedWithItsPlace) {
  const std::string whole = gzip(std::string(10'000, 'a') + "b");
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_EQ(fault_of(whole.substr(0, length))
                  .find("x.gz: cut short: the compressed text continues after byte " + std::to_string(length)),
              0U)
        << length;
  std::string damaged = whole;
  damaged[damaged.size() - 6] ^= 1;  // the checksum
  EXPECT_EQ(fault_of(damaged).find("x.gz: not gzip, or damaged, at byte "), 0U);
  EXPECT_EQ(fault_of("not gzip at all").find("x.gz: not gzip, or damaged, at byte 2: incorrect header check"), 0U);
  EXPECT_EQ(fault_of(whole + "more").find("x.gz: not gzip"), 0U);
}

}  // namespace
}  // namespace trireme
