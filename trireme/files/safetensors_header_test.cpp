#include "trireme/files/safetensors_header.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/files/json_bounds.hpp"
#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

SafetensorsHeader header_of(const std::string& json, std::uint64_t data_bytes) { return {json, data_bytes, "x.st"}; }

std::string header_refusal(const std::string& json, std::uint64_t data_bytes) {
  return message_of<CheckpointError>([&] { header_of(json, data_bytes); });
}

/// One tensor "a".
std::string tensor_a(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}
/// A tensor of dtype U8.
std::string u8(const std::string& name, std::uint64_t begin, std::uint64_t end) {
  return text("\"", name, "\":{\"dtype\":\"U8\",\"shape\":[", end - begin, "],\"data_offsets\":[", begin, ",", end,
              "]}");
}

TEST(SafetensorsHeader, GivesTensorsInTheOrderOfTheirBytes) {
  const SafetensorsHeader header = header_of(
      R"({"b":{"shape":[2, 3],"data_offsets":[8,20],"dtype":"BF16"},
          "__metadata__":{"format":"pt","":"","ü":"\n\u0000"},
          "z":{"dtype":"F64","shape":[],"data_offsets":[0,8]},
          "z2":{"dtype":"I8","shape":[0],"data_offsets":[8,8]},
          "y":{"dtype":"I8","shape":[4611686018427387,0],"data_offsets":[8,8]},
          "f4":{"dtype":"F4","shape":[3,2],"data_offsets":[20,23]}}   )",
      23);
  ASSERT_EQ(header.size(), 5U);
  const auto described = [&](std::size_t i) {
    const SafetensorsEntry e = header.entry(i);
    std::string out = text(e.name, " ", name(e.dtype));
    for (std::int64_t size : e.shape) out += text(" ", size);
    return text(out, " @", e.begin, "-", e.end);
  };
  EXPECT_EQ(described(0), "z F64 @0-8");
  EXPECT_EQ(described(1), "z2 I8 0 @8-8");
  EXPECT_EQ(described(2), "y I8 4611686018427387 0 @8-8");
  EXPECT_EQ(described(3), "b BF16 2 3 @8-20");
  EXPECT_EQ(described(4), "f4 F4 3 2 @20-23");
  EXPECT_EQ(header.metadata(),
            (SafetensorsHeader::Metadata{{"format", "pt"}, {"", ""}, {"ü", std::string("\n\0", 2)}}));
  EXPECT_EQ(header.find("b"), 3U);
  EXPECT_EQ(header.find("z"), 0U);
  EXPECT_EQ(header.find("c"), std::nullopt);
  EXPECT_EQ(header.find(""), std::nullopt);
  EXPECT_EQ(header.find("__metadata__"), std::nullopt);
  EXPECT_THROW(header.entry(5), std::out_of_range);
}

TEST(SafetensorsHeader, MayHoldNothing) {
  EXPECT_EQ(header_of("{}", 0).size(), 0U);
  EXPECT_EQ(header_of("{}" + std::string(1'000'000, ' '), 0).size(), 0U);
  EXPECT_EQ(header_of(R"({"__metadata__":{}})", 0).size(), 0U);
}

TEST(SafetensorsHeader, SizesOfEveryLengthComeBack) {
  for (int bit = 0; bit < 60; ++bit) {
    for (std::int64_t size : {std::int64_t{1} << bit, (std::int64_t{1} << bit) - 1, (std::int64_t{1} << bit) + 1}) {
      const std::string shape = text("[0,", size, ",1]");
      EXPECT_THAT(header_of(tensor_a("U8", shape, "[0,0]"), 0).entry(0).shape, ElementsAre(0, size, 1));
    }
  }
}

TEST(SafetensorsHeader, ManyTensorsAreFound) {
  std::string json = "{";
  const int count = 5000;
  for (int i = count; i-- > 0;)
    json += u8(text("model.layers.", i, ".weight"), static_cast<std::uint64_t>(2 * i),
               static_cast<std::uint64_t>(2 * i + 2)) +
            (i == 0 ? "}" : ",");
  const SafetensorsHeader header = header_of(json, 2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string wanted = text("model.layers.", i, ".weight");
    EXPECT_EQ(header.entry(i).name, wanted);
    EXPECT_EQ(header.find(wanted), i);
  }
}

struct Refused {
  std::string json;
  std::uint64_t data_bytes;
  std::string message;
};

TEST(SafetensorsHeader, EveryRuleIsKept) {
  const std::string tail = "\"shape\":[1],\"data_offsets\":[0,1]}}";
  const std::vector<Refused> all = {
      // the text
      {"", 0, "x.st: the header does not start with {\n  fix: fetch the file again"},
      {"[]", 0, "x.st: the header does not start with {"},
      {" {}", 0, "x.st: the header does not start with {"},
      {"\xEF\xBB\xBF{}", 0, "x.st: the header does not start with {"},
      {"{", 0, "x.st: the header is not JSON, at byte 2: syntax error"},
      {"{\"a\"", 0, "x.st: the header is not JSON, at byte 5: syntax error"},
      {"{a:1}", 0, "x.st: the header is not JSON, at byte 2: syntax error while parsing object key - invalid literal"},
      {"{\"a\":NaN}", 0, "x.st: the header is not JSON"},
      {"{\"\xff\":1}", 0, "x.st: the header is not UTF-8, at byte 3\n  fix: fetch the file again"},
      {"{\"\xed\xa0\x80\":1}", 0, "x.st: the header is not UTF-8"},
      {"{\"\\ud800\":1}", 0, "x.st: the header is not JSON"},
      {"{\"\n\":1}", 0, "x.st: the header is not JSON, at byte 3: syntax error while parsing object key - invalid"},
      {"{}{}", 0, "x.st: the header goes on after its JSON, at byte 3; only spaces may follow"},
      {std::string("{}\0", 3), 0, "x.st: a NUL at byte 2 of its JSON"},
      {std::string("{}\0{}", 5), 0, "x.st: a NUL at byte 2 of its JSON"},
      {std::string("{\0}", 3), 0, "x.st: a NUL at byte 1 of its JSON"},
      {"{}  x  ", 0, "x.st: the header goes on after its JSON, at byte 5; only spaces may follow"},
      {"{}\n ", 0, "x.st: the header goes on after its JSON with white space; only spaces may follow"},
      {"{} \t", 0, "x.st: the header goes on after its JSON with white space; only spaces may follow"},
      // JSON structure
      {"{\"a\":1}", 0, "x.st: tensor \"a\": must be an object, not a number"},
      {"{\"a\":-1}", 0, "x.st: tensor \"a\": must be an object, not a number"},
      {"{\"a\":\"\"}", 0, "x.st: tensor \"a\": must be an object, not a text"},
      {"{\"a\":null}", 0, "x.st: tensor \"a\": must be an object, not null"},
      {"{\"a\":true}", 0, "x.st: tensor \"a\": must be an object, not true or false"},
      {"{\"a\":[\"U8\",[1],[0,1]]}", 1, "x.st: tensor \"a\": must be an object, not a list"},
      {"{\"a\":{\"dtype\":1," + tail, 1, "x.st: tensor \"a\": dtype must be a text, not a number"},
      {"{\"a\":{\"dtype\":null," + tail, 1, "x.st: tensor \"a\": dtype must be a text, not null"},
      {"{\"a\":{\"dtype\":{\"U8\":null}," + tail, 1, "x.st: tensor \"a\": dtype must be a text, not an object"},
      {"{\"a\":{\"dtype\":[\"U8\"]," + tail, 1, "x.st: tensor \"a\": dtype must be a text, not a list"},
      {tensor_a("U8", "1", "[0,1]"), 1, "x.st: tensor \"a\": shape must be a list of whole numbers, not a number"},
      {tensor_a("U8", "\"1\"", "[0,1]"), 1, "x.st: tensor \"a\": shape must be a list of whole numbers, not a text"},
      {tensor_a("U8", "{}", "[0,1]"), 1, "x.st: tensor \"a\": shape must be a list of whole numbers, not an object"},
      {tensor_a("U8", "[[1]]", "[0,1]"), 1,
       "x.st: tensor \"a\": shape must be a list of whole numbers; it holds a list"},
      {tensor_a("U8", "[{}]", "[0,1]"), 1, "shape must be a list of whole numbers; it holds an object"},
      {tensor_a("U8", "[\"1\"]", "[0,1]"), 1, "shape must be a list of whole numbers; it holds a text"},
      {tensor_a("U8", "[null]", "[0,1]"), 1, "shape must be a list of whole numbers; it holds null"},
      {tensor_a("U8", "[true]", "[0,1]"), 1, "shape must be a list of whole numbers; it holds true or false"},
      {tensor_a("U8", "[1]", "{}"), 1, "data_offsets must be a list of whole numbers, not an object"},
      {tensor_a("U8", "[1]", "[[0],1]"), 1, "data_offsets must be a list of whole numbers; it holds a list"},
      // nesting
      {std::string(60'000, '{'), 0, "x.st: the header is not JSON"},
      {"{\"a\":" + std::string(60'000, '['), 0, "x.st: tensor \"a\": must be an object, not a list"},
      {tensor_a("U8", std::string(60'000, '['), "[0,1]"), 1, "shape must be a list of whole numbers; it holds a list"},
      {"{\"__metadata__\":{\"a\":{\"b\":{}}}}", 0,
       "x.st: __metadata__: the value of \"a\" must be a text, not an object"},
      // keys
      {"{" + u8("a", 0, 1) + "," + u8("a", 1, 2) + "}", 2, "x.st: tensor \"a\": is given twice"},
      {"{" + u8("a", 0, 1) + "," + u8("b", 1, 2) + "," + u8("a", 0, 1) + "}", 2, "tensor \"a\": is given twice"},
      {"{" + u8("a", 0, 1) + "," + u8("\\u0061", 1, 2) + "}", 2, "x.st: tensor \"a\": is given twice"},
      {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"," + tail, 1, "tensor \"a\": the key \"dtype\" is given twice"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]," + tail, 1, "tensor \"a\": the key \"shape\" is given twice"},
      {"{\"a\":{\"data_offsets\":[0,1],\"dtype\":\"U8\"," + tail, 1, "the key \"data_offsets\" is given twice"},
      {"{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0, "x.st: __metadata__: the key \"k\" is given twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "x.st: __metadata__: is given twice"},
      {"{\"a\":{\"x\\u001b\":0,\"dtype\":\"U8\"," + tail, 1,
       "x.st: tensor \"a\": unknown key \"x\\u001b\"; a tensor has dtype, shape and data_offsets"},
      {"{\"a\":{" + tail, 1, "x.st: tensor \"a\": has no dtype"},
      {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "x.st: tensor \"a\": has no shape"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "x.st: tensor \"a\": has no data_offsets"},
      {"{" + u8("a", 0, 1) + ",\"b\":{}}", 1, "x.st: tensor \"b\": has no dtype"},
      // metadata
      {"{\"__metadata__\":null}", 0, "x.st: __metadata__: must be an object, not null"},
      {"{\"__metadata__\":[]}", 0, "x.st: __metadata__: must be an object, not a list"},
      {"{\"__metadata__\":\"\"}", 0, "x.st: __metadata__: must be an object, not a text"},
      {"{\"__metadata__\":{\"k\":1}}", 0, "x.st: __metadata__: the value of \"k\" must be a text, not a number"},
      {"{\"__metadata__\":{\"k\":1.5}}", 0, "x.st: __metadata__: the value of \"k\" must be a text, not a number"},
      {"{\"__metadata__\":{\"k\":null}}", 0, "x.st: __metadata__: the value of \"k\" must be a text, not null"},
      {"{\"__metadata__\":{\"k\":[]}}", 0, "x.st: __metadata__: the value of \"k\" must be a text, not a list"},
      // dtype
      {tensor_a("F31", "[1]", "[0,4]"), 4, "x.st: tensor \"a\": unknown dtype \"F31\""},
      {tensor_a("f32", "[1]", "[0,4]"), 4, "x.st: tensor \"a\": unknown dtype \"f32\""},
      {tensor_a(std::string(999, 'F'), "[1]", "[0,4]"), 4, "unknown dtype \"" + std::string(40, 'F') + "\"... (999 b"},
      // numbers
      {tensor_a("U8", "[-1]", "[0,1]"), 1,
       "x.st: tensor \"a\": shape has the number -1; it must be a whole number from 0 to 2^63 - 1"},
      {tensor_a("U8", "[-0]", "[0,0]"), 0, "shape has the number 0; it must be a whole number"},
      {tensor_a("U8", "[1.0]", "[0,1]"), 1, "shape has the number 1.0; it must be a whole number"},
      {tensor_a("U8", "[1]", "[0,1e0]"), 1, "data_offsets has the number 1e0; it must be a whole number"},
      {tensor_a("U8", "[1]", "[0,-1]"), 1, "data_offsets has the number -1; it must be a whole number"},
      {tensor_a("U8", "[9223372036854775808]", "[0,1]"), 1,
       "x.st: tensor \"a\": shape has the number 9223372036854775808; at most 2^63 - 1 is allowed"},
      {tensor_a("U8", "[18446744073709551616]", "[0,1]"), 1, "shape has the number 18446744073709551616; it must be"},
      {tensor_a("U8", "[1]", "[0,18446744073709551615]"), 1, "data_offsets has the number 18446744073709551615; at m"},
      {tensor_a("U8", "[1e999]", "[0,1]"), 1, "x.st: the header is not JSON, at byte 33: number overflow"},
      {tensor_a("U8", "[01]", "[0,1]"), 1, "x.st: the header is not JSON"},
      // offsets
      {tensor_a("U8", "[1]", "[0]"), 1, "x.st: tensor \"a\": data_offsets has 1 numbers; it must be [begin, end]"},
      {tensor_a("U8", "[1]", "[]"), 1, "x.st: tensor \"a\": data_offsets has 0 numbers"},
      {tensor_a("U8", "[1]", "[0,1,1]"), 1, "x.st: tensor \"a\": data_offsets has 3 numbers"},
      {tensor_a("U8", "[1]", "[2,1]"), 2, "x.st: tensor \"a\": data_offsets [2, 1]: the end is before the begin"},
      {tensor_a("U8", "[2]", "[0,2]"), 1,
       "x.st: tensor \"a\": data_offsets [0, 2]: the file has only 1 bytes after the header\n  fix: fetch"},
      {tensor_a("U8", "[9223372036854775807]", "[0,9223372036854775807]"), 1, "the file has only 1 bytes"},
      // sizes
      {tensor_a("F32", "[2, 3]", "[0,20]"), 20,
       "x.st: tensor \"a\": shape [2, 3] of F32 takes 24 bytes, but data_offsets [0, 20] hold 20"},
      {tensor_a("F32", "[0]", "[0,4]"), 4, "shape [0] of F32 takes 0 bytes, but data_offsets [0, 4] hold 4"},
      {tensor_a("F32", "[]", "[0,0]"), 0, "shape [] of F32 takes 4 bytes, but data_offsets [0, 0] hold 0"},
      {tensor_a("U8", "[4294967296,4294967296]", "[0,0]"), 0,
       "x.st: tensor \"a\": shape [4294967296, 4294967296] of U8: the size overflows 64 bits"},
      {tensor_a("U8", "[4294967296,4294967296,0]", "[0,0]"), 0, "of U8: the size overflows 64 bits"},
      {tensor_a("U8", "[0,4294967296,4294967296]", "[0,0]"), 0, "of U8: the size overflows 64 bits"},
      {tensor_a("U8", "[2305843009213693952]", "[0,0]"), 0, "of U8: the size overflows 64 bits"},   // 2^64 bits
      {tensor_a("U8", "[1152921504606846976]", "[0,0]"), 0, "of U8: the size overflows 64 bits"},   // 2^63
      {tensor_a("F64", "[288230376151711744]", "[0,0]"), 0, "of F64: the size overflows 64 bits"},  // 2^64
      {tensor_a("F4", "[3]", "[0,1]"), 1,
       "x.st: tensor \"a\": shape [3] of F4 has 12 bits, which do not fill whole bytes"},
      {tensor_a("F4", "[3]", "[0,2]"), 2, "shape [3] of F4 has 12 bits, which do not fill whole bytes"},
      {tensor_a("F6_E2M3", "[2]", "[0,2]"), 2, "shape [2] of F6_E2M3 has 12 bits, which do not fill whole bytes"},
      {tensor_a("F4", "[4]", "[0,4]"), 4, "shape [4] of F4 takes 2 bytes, but data_offsets [0, 4] hold 4"},
      // tiling
      {"{" + u8("a", 0, 4) + "," + u8("b", 3, 6) + "}", 6,
       "x.st: tensor \"b\": data_offsets [3, 6] overlap those of \"a\", which end at 4"},
      {"{" + u8("a", 0, 4) + "," + u8("b", 0, 4) + "}", 4, "tensor \"b\": data_offsets [0, 4] overlap those of \"a\""},
      {"{" + u8("a", 0, 4) + "," + u8("b", 1, 2) + "}", 4, "tensor \"b\": data_offsets [1, 2] overlap those of \"a\""},
      {"{" + u8("a", 0, 4) + "," + u8("b", 2, 2) + "}", 4, "tensor \"b\": data_offsets [2, 2] overlap those of \"a\""},
      {"{" + u8("b", 5, 6) + "," + u8("a", 0, 4) + "}", 6,
       "x.st: tensor \"b\": data_offsets [5, 6] leave a hole: the bytes from 4 on are of no tensor"},
      {"{" + u8("a", 1, 4) + "}", 4, "tensor \"a\": data_offsets [1, 4] leave a hole: the bytes from 0 on"},
      {"{" + u8("a", 0, 4) + "}", 6,
       "x.st: 2 bytes follow the last tensor, which ends at byte 4 of the data\n  fix: fetch the file again"},
      {"{}", 1, "x.st: 1 bytes follow the last tensor, which ends at byte 0 of the data"},
      // names
      {"{" + u8("", 0, 1) + "}", 1, "x.st: tensor \"\": a tensor's name must not be empty"},
      {"{" + u8("a\\u0000", 0, 1) + "}", 1,
       "x.st: tensor \"a\\u0000\": a tensor's name must not hold control characters"},
      {"{" + u8("\\u001b[2J", 0, 1) + "}", 1, "x.st: tensor \"\\u001b[2J\": a tensor's name must not hold control"},
      {"{" + u8("\x7f", 0, 1) + "}", 1, "x.st: tensor \"\\u007f\": a tensor's name must not hold control"},
      {"{" + u8("\u0085", 0, 1) + "}", 1, "x.st: tensor \"\\u0085\": a tensor's name must not hold control"},
      {"{" + u8("/etc/passwd", 0, 1) + "}", 1, "x.st: tensor \"/etc/passwd\": a tensor's name must not start with /"},
      {"{" + u8("..", 0, 1) + "}", 1, "x.st: tensor \"..\": a tensor's name must not have a part \"..\""},
      {"{" + u8("a/../b", 0, 1) + "}", 1, "x.st: tensor \"a/../b\": a tensor's name must not have a part \"..\""},
      {"{" + u8("a/..", 0, 1) + "}", 1, "x.st: tensor \"a/..\": a tensor's name must not have a part \"..\""},
      {"{" + u8("../a", 0, 1) + "}", 1, "x.st: tensor \"../a\": a tensor's name must not have a part \"..\""},
      {"{" + u8(std::string(4097, 'a'), 0, 1) + "}", 1, "\"... (4097 bytes): a tensor's name has at most 4096 bytes"},
      // bounds
      {"{\"a\":" + std::string(70'000, ' ') + "1}", 0, "are allowed between two texts"},
      {"{\"" + std::string(kMaxJsonTextBytes + 1, 'a') + "\":1}", 0, "x.st: a text of 1048577 bytes at byte 1"},
      {tensor_a("U8", "[0" + std::string(64 * 2, ',') + "]", "[0,0]"), 0, "x.st: the header is not JSON"},
  };
  for (const auto& [json, data_bytes, message] : all) {
    const std::string found = header_refusal(json, data_bytes);
    EXPECT_THAT(found, AllOf(StartsWith("x.st: "), HasSubstr(message))) << json.substr(0, 300);
    EXPECT_LT(found.size(), 1000U) << json.substr(0, 300);
    for (const char c : found) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= ' ') << found;
  }
}

TEST(SafetensorsHeader, BoundsAreExact) {
  const auto sizes = [](std::size_t count) {
    std::string list = "[0";
    for (std::size_t i = 1; i < count; ++i) list += ",1";
    return list + "]";
  };
  EXPECT_EQ(header_of(tensor_a("U8", sizes(kMaxSizes), "[0,0]"), 0).entry(0).shape.size(), kMaxSizes);
  EXPECT_EQ(header_refusal(tensor_a("U8", sizes(kMaxSizes + 1), "[0,0]"), 0),
            "x.st: tensor \"a\": shape has more than 64 numbers");
  EXPECT_EQ(header_of("{" + u8(std::string(kMaxNameBytes, 'a'), 0, 1) + "}", 1).size(), 1U);

  const auto metadata = [](std::size_t count) {
    std::string json = "{\"__metadata__\":{\"k\":\"\"";
    for (std::size_t i = 1; i < count; ++i) json += text(",\"", i, "\":\"\"");
    return json + "}}";
  };
  EXPECT_EQ(header_of(metadata(kMaxMetadataKeys), 0).metadata().size(), kMaxMetadataKeys);
  EXPECT_EQ(header_refusal(metadata(kMaxMetadataKeys + 1), 0), "x.st: __metadata__: has more than 16384 keys");

  // The largest that fits: 2^63 - 8 bits.
  EXPECT_THAT(header_refusal(tensor_a("U8", "[1152921504606846975]", "[0,0]"), 0),
              HasSubstr("takes 1152921504606846975 bytes, but"));
  const std::string padded = "{" + std::string(kMaxJsonGapBytes - 1, ' ') + u8("a", 0, 1) + "}";
  EXPECT_EQ(header_of(padded, 1).size(), 1U);
}

TEST(SafetensorsHeader, NamesThatOnlyLookHostileAreFine) {
  for (const char* tensor : {"a..b", "...", "a/b", "..a/b", "a/..b", "a/", "ü漢😀", "a b", "\\\"", "\\\\", "\u00A0"})
    EXPECT_EQ(header_refusal("{" + u8(tensor, 0, 1) + "}", 1), "no error") << tensor;
}

}  // namespace
}  // namespace trireme::files
