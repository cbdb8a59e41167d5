#include "trireme/files/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const std::string kTwo = R"({"a":{"dtype":"I16","shape":[2,3],"data_offsets":[0,12]},)"
                         R"("b":{"dtype":"F4","shape":[2],"data_offsets":[12,13]}})";

/// A temporary file, removed with this object.
struct OneFile {
  explicit OneFile(const std::string& bytes) { write_file(path, bytes); }
  TempFolder folder;
  std::filesystem::path path = folder / "model.safetensors";
};

std::string file_refusal(const std::string& bytes) {
  const OneFile file(bytes);
  return message_of<CheckpointError>([&] { Safetensors safetensors(file.path); });
}

TEST(Safetensors, GivesTensorsAndTheirBytes) {
  const OneFile on_disk(safetensors_bytes(kTwo, "abcdefghijklm"));
  Safetensors opened(on_disk.path);
  const Safetensors file = std::move(opened);
  ASSERT_EQ(file.size(), 2U);
  EXPECT_EQ(file.entry(1).name, "b");
  EXPECT_EQ(as_text(file.bytes(file.entry(0))), "abcdefghijkl");
  EXPECT_EQ(as_text(file.bytes(file.at("b"))), "m");
  EXPECT_EQ(file.find("c"), std::nullopt);
  EXPECT_EQ(file.find("a")->end, 12U);
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(message_of<CheckpointError>([&] { file.at("c\n"); }),
            on_disk.path.string() + ": there is no tensor \"c\\u000a\" among its 2");
}

TEST(Safetensors, TheLengthAtTheStartIsChecked) {
  EXPECT_THAT(file_refusal(""), HasSubstr("model.safetensors: 0 bytes; a safetensors file starts with the 8 bytes"));
  EXPECT_THAT(file_refusal("1234567"), HasSubstr(": 7 bytes; a safetensors file starts with the 8 bytes of its"));
  EXPECT_THAT(file_refusal("1234567"), HasSubstr("\n  fix: fetch the file again"));
  for (std::uint64_t length : {std::uint64_t{1} << 63, ~std::uint64_t{0}, ~std::uint64_t{0} - 7, kMaxHeaderBytes + 1})
    EXPECT_THAT(file_refusal(length_field(length) + "{}"),
                HasSubstr(text(": its header has ", length, " bytes by the length at its start; at most 100000000 ")));
  EXPECT_THAT(file_refusal(length_field(3) + "{}"),
              HasSubstr(": its header has 3 bytes by the length at its start, but only 2 follow\n  fix: fetch"));
  EXPECT_THAT(file_refusal(length_field(kMaxHeaderBytes) + "{}"), HasSubstr("but only 2 follow"));
  EXPECT_THAT(file_refusal(length_field(0)), HasSubstr(": the header does not start with {"));
  EXPECT_THAT(file_refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
              HasSubstr(": this is a pointer of Git LFS, not the tensors\n  fix: git lfs pull"));
  EXPECT_EQ(file_refusal(length_field(2) + "{}"), "no error");
}

TEST(Safetensors, EveryTruncationAndEveryAddedByteIsRefused) {
  const std::string whole = safetensors_bytes(kTwo, "abcdefghijklm");
  EXPECT_EQ(file_refusal(whole), "no error");
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_THAT(file_refusal(whole.substr(0, bytes)), HasSubstr("fix: ")) << bytes;
  EXPECT_THAT(file_refusal(whole + "x"), HasSubstr("1 bytes follow the last tensor"));
}

/// Reference: element by element, with the strides of the whole tensor.
std::string naive_box(const std::string& data, std::size_t element_bytes, const std::vector<std::int64_t>& shape,
                      const std::vector<std::int64_t>& starts, const std::vector<std::int64_t>& sizes) {
  std::string out;
  std::int64_t count = 1;
  for (std::int64_t size : sizes) count *= size;
  for (std::int64_t n = 0; n < count; ++n) {
    std::int64_t rest = n, at = 0, stride = 1;
    for (std::size_t dim = shape.size(); dim-- > 0;) {
      at += (starts[dim] + rest % sizes[dim]) * stride;
      rest /= sizes[dim];
      stride *= shape[dim];
    }
    out += data.substr(static_cast<std::size_t>(at) * element_bytes, element_bytes);
  }
  return out;
}

TEST(Safetensors, BoxesAreThoseOfANaiveLoop) {
  std::mt19937_64 engine(7);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  };
  const std::vector<std::pair<std::string, std::size_t>> dtypes = {{"BOOL", 1}, {"BF16", 2}, {"F32", 4}, {"C64", 8}};
  for (int round = 0; round < 60; ++round) {
    const auto& [dtype, element_bytes] = dtypes[static_cast<std::size_t>(round) % dtypes.size()];
    std::vector<std::int64_t> shape(static_cast<std::size_t>(pick(0, 5)));
    std::string list;
    std::size_t bytes = element_bytes;
    for (std::int64_t& size : shape) {
      size = pick(round % 10 == 0 ? 0 : 1, 5);
      list += text(list.empty() ? "" : ",", size);
      bytes *= static_cast<std::size_t>(size);
    }
    std::string data(bytes + 3, ' ');  // after a tensor of 3 bytes: not aligned
    for (char& c : data) c = static_cast<char>(pick(0, 255));
    const OneFile on_disk(
        safetensors_bytes(text(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"t":{"dtype":")", dtype,
                               R"(","shape":[)", list, R"(],"data_offsets":[3,)", bytes + 3, "]}}"),
                          data));
    const Safetensors file(on_disk.path);
    const SafetensorsEntry entry = file.at("t");
    ASSERT_EQ(entry.shape, shape);
    for (int box = 0; box < 30; ++box) {
      std::vector<std::int64_t> starts, sizes;
      std::size_t box_bytes = element_bytes;
      for (std::int64_t size : shape) {
        const bool whole = pick(0, 2) == 0;
        starts.push_back(whole ? 0 : pick(0, size));
        sizes.push_back(
            whole ? size
                  : pick(pick(0, 9) == 0 ? 0 : std::min<std::int64_t>(1, size - starts.back()), size - starts.back()));
        box_bytes *= static_cast<std::size_t>(sizes.back());
      }
      std::string out(box_bytes + 8, '#');  // the 4 guard bytes on either side must stay unchanged
      file.read(entry, starts, sizes, std::as_writable_bytes(std::span(out)).subspan(4, box_bytes));
      EXPECT_EQ(out, "####" + naive_box(data.substr(3), element_bytes, shape, starts, sizes) + "####");
    }
  }
}

TEST(Safetensors, BoxesThatLeaveTheTensorAreRefused) {
  const OneFile on_disk(safetensors_bytes(kTwo, "abcdefghijklm"));
  const Safetensors file(on_disk.path);
  std::vector<std::byte> out(12);
  using Numbers = std::vector<std::int64_t>;
  const auto refusal = [&](const char* tensor, const Numbers& starts, const Numbers& sizes) {
    return message_of<CheckpointError>([&] { file.read(file.at(tensor), starts, sizes, out); });
  };
  constexpr std::int64_t kMin = INT64_MIN, kMax = INT64_MAX;
  EXPECT_EQ(refusal("a", {0, 0}, {2, 3}), "no error");
  EXPECT_THAT(refusal("a", {0, 0}, {3, 3}),
              HasSubstr(": tensor \"a\": dim 0: 3 elements from 0 on leave a dim of size 2"));
  EXPECT_THAT(refusal("a", {0, 1}, {2, 3}), HasSubstr("dim 1: 3 elements from 1 on leave a dim of size 3"));
  EXPECT_THAT(refusal("a", {-1, 0}, {2, 3}), HasSubstr("dim 0: 2 elements from -1 on"));
  EXPECT_THAT(refusal("a", {0, 0}, {-2, -3}), HasSubstr("dim 0: -2 elements from 0 on"));
  EXPECT_THAT(refusal("a", {3, 0}, {0, 3}), HasSubstr("dim 0: 0 elements from 3 on"));
  EXPECT_THAT(refusal("a", {kMax, 0}, {kMax, 3}), HasSubstr("dim 0: "));
  EXPECT_THAT(refusal("a", {kMin, 0}, {kMin, 3}), HasSubstr("dim 0: "));
  EXPECT_THAT(refusal("a", {1, 0}, {kMax, 3}), HasSubstr("dim 0: "));
  EXPECT_THAT(refusal("a", {0}, {2}), HasSubstr("a box of 1 starts and 1 sizes for a tensor of 2 dims"));
  EXPECT_THAT(refusal("a", {0, 0}, {2, 3, 1}), HasSubstr("a box of 2 starts and 3 sizes for a tensor of 2 dims"));
  EXPECT_THAT(refusal("b", {0}, {2}),
              HasSubstr(": tensor \"b\": an element of F4 has 4 bits: only the whole tensor can be read"));
  const auto broken = [&](const SafetensorsEntry& entry, std::size_t bytes) {
    std::vector<std::byte> other(bytes);
    return message_of<InternalError>([&] { file.read(entry, Numbers{0, 0}, Numbers{2, 3}, other); });
  };
  SafetensorsEntry entry = file.at("a");
  EXPECT_THAT(broken(entry, 11), HasSubstr(": tensor \"a\": a box of 12 bytes is read into 11"));
  EXPECT_THAT(broken(entry, 13), HasSubstr("a box of 12 bytes is read into 13"));
  entry.end = 14;
  EXPECT_THAT(broken(entry, 12), HasSubstr("the entry is not of this file"));
  entry = file.at("a");
  entry.begin = entry.end + 1;
  EXPECT_THAT(broken(entry, 12), HasSubstr("the entry is not of this file"));
  entry = file.at("a");
  entry.shape = {200, 3};
  EXPECT_THAT(broken(entry, 12), HasSubstr("the entry is not of this file"));
}

}  // namespace
}  // namespace trireme::files
