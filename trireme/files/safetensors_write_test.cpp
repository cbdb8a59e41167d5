#include "trireme/files/safetensors_write.hpp"

#include <fstream>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/files/safetensors.hpp"
#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_in(std::string_view text) { return std::as_bytes(std::span(text)); }

class Written : public ::testing::Test {
 protected:
  /// The message of the InternalError that writing the header throws.
  std::string header_refusal(const std::vector<SafetensorsTensor>& tensors,
                             const SafetensorsHeader::Metadata& metadata = {}) {
    return message_of<InternalError>([&] {
      StagedFiles files;
      const SafetensorsWriter writer(files.add(path_), tensors, metadata);
    });
  }

  TempFolder folder_;
  std::filesystem::path path_ = folder_ / "a.safetensors";
};

TEST_F(Written, IsWhatTheReferenceLibraryWrites) {
  StagedFiles files;
  SafetensorsWriter writer(files.add(path_),
                           {{"b", SafetensorsDtype::F32, {2}}, {"a", SafetensorsDtype::BF16, {1, 2}}});
  writer.append("b", bytes_in("1234"));
  writer.append("b", bytes_in("5678"));
  writer.append("a", bytes_in("abcd"));
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(path_));
  files.publish();
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}})";
  ASSERT_EQ(header.size(), 142U);
  EXPECT_EQ(file_contents(path_), safetensors_bytes(header + "  ", "12345678abcd"));
}

TEST_F(Written, WithoutTensorsOrMetadataIsAFileToo) {
  StagedFiles files;
  SafetensorsWriter(files.add(path_), {}, {}).finish();
  files.publish();
  EXPECT_EQ(file_contents(path_), safetensors_bytes("{}      "));
}

/// Round trip of any names, dtypes, shapes and write sizes.
RC_GTEST_PROP(SafetensorsWriter, WhatItWritesIsRead, ()) {
  const TempFolder folder;
  std::vector<SafetensorsTensor> tensors;
  std::vector<std::string> contents;
  const auto count = *rc::gen::inRange(0, 8);
  for (int i = 0; i < count; ++i) {
    const std::string word = *rc::gen::element<std::string>("w", "layers/", "\"quoted\\", "ü漢😀", "a b", "..x");
    std::vector<std::int64_t> shape =
        *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 9));
    if (shape.size() > 4) shape.resize(4);
    tensors.push_back({text(word, i), static_cast<SafetensorsDtype>(*rc::gen::inRange(4, 22)), shape});
    const auto size = bytes_of(tensors.back());
    std::string all(size, '\0');
    std::iota(all.begin(), all.end(), static_cast<char>(i));
    contents.push_back(all);
  }
  SafetensorsHeader::Metadata metadata;
  if (*rc::gen::arbitrary<bool>()) metadata = {{"format", "pt"}, {"", "\n\t\"\\\x01"}};
  StagedFiles files;
  SafetensorsWriter writer(files.add(folder / "a"), tensors, metadata);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t at = 0; at < contents[i].size();) {
      const auto piece =
          std::min<std::size_t>(static_cast<std::size_t>(*rc::gen::inRange(0, 4000)), contents[i].size() - at);
      writer.append(tensors[i].name, bytes_in(contents[i]).subspan(at, piece));
      at += piece;
    }
  }
  writer.finish();
  files.publish();

  const Safetensors read(folder / "a");
  RC_ASSERT(read.metadata() == metadata);
  RC_ASSERT(read.size() == tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SafetensorsEntry entry = read.entry(i);
    RC_ASSERT(entry.name == tensors[i].name);
    RC_ASSERT(entry.dtype == tensors[i].dtype);
    RC_ASSERT(entry.shape == tensors[i].shape);
    RC_ASSERT(as_text(read.bytes(entry)) == contents[i]);
  }
  std::uint64_t length = 0;
  std::ifstream(folder / "a", std::ios::binary).read(reinterpret_cast<char*>(&length), sizeof length);
  RC_ASSERT(length % 8 == 0U);
}

TEST_F(Written, EveryTensorGetsItsBytes) {
  const std::vector<SafetensorsTensor> tensors = {
      {"a", SafetensorsDtype::U8, {4}}, {"none", SafetensorsDtype::U8, {0}}, {"b", SafetensorsDtype::U8, {2}}};
  const auto refusal = [&](const std::vector<std::pair<std::string, std::string>>& pieces) {
    return message_of<InternalError>([&] {
      StagedFiles files;
      SafetensorsWriter writer(files.add(path_), tensors);
      for (const auto& [tensor, piece] : pieces) writer.append(tensor, bytes_in(piece));
      writer.finish();
      files.publish();
    });
  };
  const std::string file = path_.string();
  EXPECT_EQ(refusal({{"a", "12345"}}), file + ": tensor \"a\" has 4 bytes; 5 more come after 0");
  EXPECT_EQ(refusal({{"a", "1234"}, {"a", "5"}}), file + ": tensor \"a\" has 4 bytes; 1 more come after 4");
  EXPECT_EQ(refusal({{"a", "12"}, {"b", "1"}}), file + ": tensor \"a\" has 2 of its 4 bytes when bytes of \"b\" come");
  EXPECT_EQ(refusal({{"a", "12"}}), file + ": tensor \"a\" has 2 of its 4 bytes when the file ends");
  EXPECT_EQ(refusal({{"a", "1234"}, {"b", "1"}}), file + ": tensor \"b\" has 1 of its 2 bytes when the file ends");
  EXPECT_EQ(refusal({{"a", "1234"}}), file + ": tensor \"b\" has 0 of its 2 bytes when the file ends");
  EXPECT_EQ(refusal({{"a", "1234"}, {"b", "12"}, {"a", "1"}}),
            file + ": bytes of tensor \"a\" come after the last tensor; it is not in this file, or its turn is over");
  EXPECT_THAT(refusal({{"a", "1234"}, {"none", "1"}}), HasSubstr("tensor \"none\" has 0 bytes; 1 more"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_EQ(refusal({{"a", "1"}, {"a", ""}, {"a", "234"}, {"none", ""}, {"b", "12"}}), "no error");
  EXPECT_EQ(as_text(Safetensors(path_).bytes(Safetensors(path_).at("a"))), "1234");
}

TEST_F(Written, BadNamesAndShapesAreRefused) {
  const auto dtype = SafetensorsDtype::F32;
  EXPECT_THAT(header_refusal({{"a", dtype, {}}, {"b", dtype, {}}, {"a", dtype, {}}}),
              HasSubstr(path_.string() + ": tensor \"a\": is given twice"));
  EXPECT_THAT(header_refusal({{"", dtype, {}}}), HasSubstr("must not be empty"));
  EXPECT_THAT(header_refusal({{"a/../b", dtype, {}}}), HasSubstr("must not have a part \"..\""));
  EXPECT_THAT(header_refusal({{"a\n", dtype, {}}}), HasSubstr("control characters"));
  EXPECT_THAT(header_refusal({{"\xff", dtype, {}}}), HasSubstr("must be UTF-8"));
  EXPECT_THAT(header_refusal({{"__metadata__", dtype, {}}}), HasSubstr("not a tensor's"));
  EXPECT_EQ(header_refusal({{"a", dtype, {2, -1}}}), "tensor \"a\": shape [2,-1] of F32 has a negative size");
  EXPECT_THAT(header_refusal({{"a", dtype, {0, std::numeric_limits<std::int64_t>::max()}}}), HasSubstr("overflows"));
  EXPECT_THAT(header_refusal({{"a", SafetensorsDtype::F4, {3}}}), HasSubstr("12 bits, which do not fill whole bytes"));
  EXPECT_THAT(header_refusal({{"a", dtype, std::vector<std::int64_t>(65, 1)}}), HasSubstr("more than 64 numbers"));
  const std::int64_t most = std::int64_t{1} << 59;  // bytes of one
  std::vector<SafetensorsTensor> many(16, {"", SafetensorsDtype::U8, {most}});
  for (std::size_t i = 0; i < many.size(); ++i) many[i].name = text("t", i);
  EXPECT_THAT(header_refusal(many), HasSubstr("\"t15\" would end at byte 9223372036854775808"));
}

}  // namespace
}  // namespace trireme::files
