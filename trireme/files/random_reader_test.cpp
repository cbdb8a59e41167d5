#include "trireme/files/random_reader.hpp"

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string read_text(const RandomReader& file, std::uint64_t offset, std::size_t count) {
  std::string out(count, '\0');
  file.read(offset, std::as_writable_bytes(std::span(out)));
  return out;
}

std::string read_refusal(const RandomReader& file, std::uint64_t offset, std::size_t count) {
  return message_of<DataError>([&] { read_text(file, offset, count); });
}

/// Sets a different modification time, beyond the resolution of any file system.
void make_older(const std::filesystem::path& path) {
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
}

TEST(RandomReader, ReadsAnyRangeWithoutThePageCache) {
  const TempFolder folder;
  std::string bytes(3 * 4096 + 123, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 251);
  write_file(folder / "a", bytes);
  const RandomReader file(folder / "a");
  const DirectScratch scratch(bytes.size());
  std::string out(1, '\0');
  if (!file.read_direct(0, std::as_writable_bytes(std::span(out)), scratch))
    GTEST_SKIP() << "this file system has no direct I/O";
  for (const std::size_t offset : {0UL, 1UL, 4095UL, 4096UL, 5000UL, 12287UL, 12288UL, 12410UL})
    for (const std::size_t count : {0UL, 1UL, 4095UL, 4096UL, 4097UL, 8193UL, bytes.size()}) {
      out.assign(std::min(count, bytes.size() - offset), '\0');
      EXPECT_TRUE(file.read_direct(offset, std::as_writable_bytes(std::span(out)), scratch)) << offset;
      EXPECT_EQ(out, bytes.substr(offset, out.size())) << offset << " " << out.size();
    }
  EXPECT_EQ(read_text(file, 4000, 200), bytes.substr(4000, 200)) << "the other way works as before";
  std::string too_many(2 * 4096 + 1, '\0');
  EXPECT_THROW(file.read_direct(0, std::as_writable_bytes(std::span(too_many)), DirectScratch(4096)), InternalError);
  EXPECT_THROW(file.read_direct(bytes.size(), std::as_writable_bytes(std::span(out)), scratch), InternalError);

  std::filesystem::resize_file(folder / "a", 4096);
  EXPECT_FALSE(file.read_direct(0, std::as_writable_bytes(std::span(too_many)), scratch)) << "read() says why";
  EXPECT_THAT(read_refusal(file, 0, 8193), HasSubstr("ends at byte 4096"));
  std::filesystem::resize_file(folder / "a", bytes.size());
  make_older(folder / "a");
  EXPECT_THROW(file.read_direct(0, std::as_writable_bytes(std::span(too_many)), scratch), DataError);
}

TEST(RandomReader, ReadsAnyRange) {
  const TempFolder folder;
  write_file(folder / "a", "hello, world");
  RandomReader file(folder / "a");
  EXPECT_EQ(file.size(), 12u);
  EXPECT_EQ(file.shown(), (folder / "a").string());
  for (std::size_t first = 0; first <= 12; ++first)
    for (std::size_t count = 0; first + count <= 12; ++count)
      EXPECT_EQ(read_text(file, first, count), std::string("hello, world").substr(first, count));
  EXPECT_THROW(read_text(file, 12, 1), InternalError);
  EXPECT_THROW(read_text(file, 13, 0), InternalError);
  EXPECT_THROW(read_text(file, ~std::uint64_t{0}, 2), InternalError);  // offset + length overflows to 1
  RandomReader moved = std::move(file);
  EXPECT_EQ(read_text(moved, 7, 5), "world");
  RandomReader other(folder / "a");
  other = std::move(moved);
  EXPECT_EQ(read_text(other, 7, 5), "world");
}

TEST(RandomReader, ReadsNumbersWithTheLeastSignificantByteFirst) {
  const TempFolder folder;
  write_file(folder / "a", std::string("x\x01\x02\x03\x04\xff\xff\xff\xff", 9));
  std::vector<std::int32_t> numbers(2);
  RandomReader(folder / "a").read_numbers(1, std::span(numbers));
  EXPECT_EQ(numbers, (std::vector<std::int32_t>{0x04030201, -1}));
}

TEST(RandomReader, RefusesWhatIsNotAFileWithoutWaiting) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const auto refusal = [](const std::filesystem::path& path) {
    return message_of<DataError>([&] { RandomReader file(path); });
  };
  EXPECT_THAT(refusal(folder / "pipe"), HasSubstr("pipe is not a regular file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr(" is not a regular file"));
  EXPECT_THAT(refusal(folder / "none"), HasSubstr("none: cannot be opened: No such file or directory"));
  if (::geteuid() != 0) {  // root may read everything
    write_file(folder / "secret", "x");
    ::chmod((folder / "secret").c_str(), 0);
    EXPECT_THAT(refusal(folder / "secret"), HasSubstr("Permission denied"));
  }
}

TEST(RandomReader, KeepsNoDescriptorOfWhatItRefuses) {
  const TempFolder folder;
  const int before = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_THROW(RandomReader{folder.path()}, DataError);
  const int after = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(after, before + 1);
  ::close(before);
  ::close(after);
}

TEST(RandomReader, AFileThatShrinksIsAnErrorWithAllNumbers) {
  const TempFolder folder;
  write_file(folder / "a", std::string(10'000, 'a'));
  const RandomReader file(folder / "a");
  EXPECT_EQ(read_text(file, 9'000, 1'000), std::string(1'000, 'a'));
  std::filesystem::resize_file(folder / "a", 9'500);  // within a page: a mapping would read zeros
  EXPECT_THAT(read_refusal(file, 9'000, 1'000),
              AllOf(HasSubstr((folder / "a").string() + ": ends at byte 9500 while bytes 9000 to 10000 are read"),
                    HasSubstr("had 10000 bytes when it was opened and has 9500 now"), HasSubstr("fix: ")));
  EXPECT_THAT(read_refusal(file, 9'600, 1), HasSubstr("ends at byte 9600"));
  // The remaining bytes are not trusted either.
  EXPECT_THAT(read_refusal(file, 0, 1), HasSubstr("was changed while it was being read"));
  std::filesystem::resize_file(folder / "a", 0);
  EXPECT_THAT(read_refusal(file, 0, 1), HasSubstr("has 0 now"));
}

TEST(RandomReader, AFileWrittenToInPlaceIsAnError) {
  const TempFolder folder;
  write_file(folder / "a", "old");
  make_older(folder / "a");
  const RandomReader file(folder / "a");
  EXPECT_EQ(read_text(file, 0, 3), "old");
  write_file(folder / "a", "new");
  EXPECT_THAT(read_refusal(file, 0, 3), AllOf(HasSubstr("was changed while it was being read"),
                                              HasSubstr("had 3 bytes"), HasSubstr("has 3 now")));
  write_file(folder / "a", "longer");
  EXPECT_THAT(read_refusal(file, 0, 3), HasSubstr("has 6 now"));
}

TEST(RandomReader, AFileReplacedByARenameStaysWhatItWas) {
  const TempFolder folder;
  write_file(folder / "a", "old");
  const RandomReader file(folder / "a");
  write_file(folder / "b", "new");
  std::filesystem::rename(folder / "b", folder / "a");
  EXPECT_EQ(read_text(file, 0, 3), "old");
  std::filesystem::remove(folder / "a");
  EXPECT_EQ(read_text(file, 0, 3), "old");
}

TEST(RandomReader, ManyThreadsReadAtOnce) {
  const TempFolder folder;
  std::vector<std::uint32_t> numbers(50'000);
  std::iota(numbers.begin(), numbers.end(), 0u);
  write_file(folder / "a", std::string(little_endian_bytes(std::span<const std::uint32_t>(numbers))));
  const RandomReader file(folder / "a");
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (std::uint32_t seed = 0; seed < 4; ++seed)
    threads.emplace_back([&, seed] {
      std::uint32_t at = seed;
      for (int i = 0; i < 2'000; ++i) {
        at = (at * 1'664'525u + 1'013'904'223u) % 49'900u;
        std::vector<std::uint32_t> out(100);
        file.read_numbers(std::uint64_t{at} * 4, std::span(out));
        for (std::uint32_t k = 0; k < 100; ++k) wrong += out[k] != at + k;
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace trireme::files
