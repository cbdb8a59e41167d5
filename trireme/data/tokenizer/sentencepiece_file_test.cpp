// SentencePiece .model files, written here field by field. That tokens are those of the reference is checked by
// peers.sentencepiece.
#include <bit>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/data/tokenizer/protobuf.hpp"
#include "trireme/data/tokenizer/stream_decoder.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/tokenizer_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using TokenIds = std::vector<TokenId>;

std::string proto_varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string proto_field(unsigned number, std::uint64_t value) {
  return proto_varint(number << 3) + proto_varint(value);
}
std::string proto_field(unsigned number, const std::string& bytes) {
  return proto_varint(number << 3 | 2) + proto_varint(bytes.size()) + bytes;
}
std::string little_endian_bytes(std::uint32_t value) {
  std::string out;
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift);
  return out;
}

enum PieceType : unsigned { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

std::string piece(const std::string& spelling, float score, PieceType type = kNormal) {
  return proto_field(1, proto_field(1, spelling) + proto_varint(2 << 3 | 5) +
                            little_endian_bytes(std::bit_cast<std::uint32_t>(score)) + proto_field(3, type));
}

constexpr unsigned kUnigram = 1, kBpe = 2;
const std::string kFirst = piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl);
std::string model_of(unsigned type, const std::string& pieces, const std::string& trainer = "",
                     const std::string& normalizer = "") {
  return kFirst + pieces + proto_field(2, proto_field(3, type) + trainer) + proto_field(3, normalizer);
}

Tokenizer read_model_file(const std::string& proto) {
  return Tokenizer(parts_of_sentencepiece_bytes(proto, "x.model"));
}
std::string model_refusal(const std::string& proto) {
  return message_of<DataError>([&] { read_model_file(proto); });
}

const std::string kPieces = piece("\u2581", -1) + piece("a", -2) + piece("b", -3) + piece("ab", -4) +
                            piece("\u2581a", -5) + piece("<x>", 0, kUserDefined);

TEST(SentencePieceFile, BpeMergesTheHighestScoreFirst) {
  const Tokenizer tokenizer = read_model_file(model_of(kBpe, kPieces));
  EXPECT_EQ(tokenizer.encode("ab a"), (TokenIds{3, 6, 7}));
  EXPECT_EQ(tokenizer.encode("  b<x>a  "), (TokenIds{3, 5, 8, 4})) << "extra spaces are removed";
  EXPECT_EQ(tokenizer.encode("xyb"), (TokenIds{3, 0, 5})) << "unknown characters in a row are one token";
  EXPECT_EQ(tokenizer.encode("</s>"), (TokenIds{3, 0})) << "as in the reference, text";
  EXPECT_EQ(tokenizer.encode_part("</s>", SpecialText::token), (TokenIds{2}));
  EXPECT_EQ(tokenizer.encode_part("b", SpecialText::text, TextPlace::continues), (TokenIds{5}));
  EXPECT_EQ(tokenizer.end_of_document(), TokenId{2});
  EXPECT_EQ(tokenizer.vocab_size(), 9);
  EXPECT_EQ(tokenizer.decode(TokenIds{1, 3, 7, 3, 6, 0, 8, 2}), "a ab \u2047 <x>");
}

TEST(SentencePieceFile, BpeMergesCharactersThatAreNoPieces) {
  const Tokenizer tokenizer = read_model_file(model_of(kBpe, piece("\u2581", -1) + piece("qu", -2)));
  EXPECT_EQ(tokenizer.encode("qu q"), (TokenIds{3, 4, 3, 0}));
}

TEST(SentencePieceFile, UnigramTakesTheHighestSum) {
  const Tokenizer tokenizer = read_model_file(model_of(kUnigram, kPieces));
  EXPECT_EQ(tokenizer.encode("ab"), (TokenIds{3, 6}));
  EXPECT_EQ(tokenizer.encode("a<x>"), (TokenIds{3, 4, 8}));
}

TEST(SentencePieceFile, OnlyTheDummyPrefixIsStrippedWhereSpacesAreKept) {
  const std::string keep_spaces = proto_field(4, 0);
  const Tokenizer tokenizer = read_model_file(model_of(kBpe, kPieces, "", keep_spaces));
  const TokenIds ids = tokenizer.encode("  a ");
  EXPECT_EQ(tokenizer.decode(ids), "  a ");
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const TokenId id : ids) streamed += stream.push(id);
  EXPECT_EQ(streamed + stream.finish(), "  a ");
  EXPECT_EQ(read_model_file(model_of(kBpe, kPieces)).decode(ids), "a ");
}

/// The rule "A" -> "bb" as a trie of one block.
std::string small_charsmap() {
  std::array<std::uint32_t, 256> units{};
  units[0] = 1 << 10;
  units[1 ^ 'A'] = 0xC0 << 10 | 1 << 8 | 'A';
  units[1 ^ 'A' ^ 0xC0] = std::uint32_t{1} << 31 | 2;
  std::string out = little_endian_bytes(1024);
  for (const std::uint32_t unit : units) out += little_endian_bytes(unit);
  return out + std::string("x\0bb\0", 5);
}

TEST(SentencePieceFile, RulesAreApplied) {
  const std::string rules = small_charsmap();
  EXPECT_EQ(read_model_file(model_of(kBpe, kPieces, "", proto_field(2, rules))).encode("aA"), (TokenIds{3, 6, 5}));
  const auto refusal = [&](std::size_t at, char byte) {
    std::string broken = rules;
    broken[at] = byte;
    return model_refusal(model_of(kBpe, kPieces, "", proto_field(2, broken)));
  };
  EXPECT_THAT(refusal(1, 1),
              HasSubstr("x.model: precompiled_charsmap: the trie of 256 bytes should be blocks of 1024"));
  EXPECT_THAT(refusal(5, 0), HasSubstr("the trie has no root"));
  EXPECT_THAT(refusal(4 + 4 * 0x40 + 2, 0x10), HasSubstr("unit 64 of the trie leads outside of it"));
  EXPECT_THAT(refusal(4 + 4 * 0x80, 100), HasSubstr("unit 128 of the trie leads outside of it"));
  EXPECT_THAT(refusal(rules.size() - 1, 'x'), HasSubstr("texts that each end with a NUL"));
}

TEST(SentencePieceFile, BytesStandForUnknownCharacters) {
  std::string bytes;
  constexpr std::string_view kHexDigits = "0123456789ABCDEF";
  for (unsigned byte = 0; byte < 256; ++byte)
    bytes += piece(text("<0x", kHexDigits[byte >> 4], kHexDigits[byte & 15], '>'), 0, kByte);
  const std::string fallback = proto_field(35, 1);
  for (const unsigned type : {kBpe, kUnigram}) {
    const Tokenizer tokenizer = read_model_file(model_of(type, bytes + kPieces, fallback));
    const TokenIds ids = tokenizer.encode("b\u00E9a");
    EXPECT_EQ(ids, (TokenIds{259, 261, 3 + 0xC3, 3 + 0xA9, 260}));
    EXPECT_EQ(tokenizer.decode(ids), "b\u00E9a");
  }
  EXPECT_THAT(model_refusal(model_of(kBpe, bytes + kPieces)), HasSubstr("is a byte, but byte_fallback is not set"));
  EXPECT_THAT(model_refusal(model_of(kBpe, kPieces, fallback)), HasSubstr("only 0 of 256 bytes have a piece"));
}

TEST(SentencePieceFile, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, const char*>> cases{
      {"", "x.model has no pieces"},
      {"IQ== 0\nIg== 1\n", "lines of base64, as Llama 3's own file"},
      {model_of(kBpe, piece("", 0)), "x.model: piece 3 (\"\") has 0 bytes; 1 to 7999 are allowed"},
      {model_of(kBpe, piece("a", 0) + piece("a", 0)), "x.model: piece 4 (\"a\") is there twice"},
      {model_of(kBpe, piece(std::string("a\0", 2), 0)), "has a NUL"},
      {model_of(kBpe, piece("u", 0, kUnknown)), "2 pieces are of the type unknown; exactly one must be"},
      {model_of(kBpe, piece("u", 0, kUnused)), "a piece of the type unused (\"u\") in a BPE model is not supported"},
      {model_of(kBpe, piece("u", 0, kByte), proto_field(35, 1)), "but not one of <0x00> ... <0xFF>"},
      {model_of(kBpe, piece("u", std::numeric_limits<float>::infinity())), "field 2: is not a finite number"},
      {model_of(kBpe, piece("u", 0, static_cast<PieceType>(9))), "there is no type of pieces 9"},
      {model_of(3, kPieces), "a model of words is not supported"},
      {model_of(4, kPieces), "a model of characters is not supported"},
      {model_of(7, kPieces), "there is no type of models 7"},
      {model_of(kBpe, kPieces) + proto_field(5, proto_field(2, "rules")), "rules for decoding (denormalizer_spec)"},
      {kFirst + proto_field(2, proto_field(3, kUnigram)), "no piece of a unigram model can be found in a text"},
      {model_of(kBpe, piece(std::string(1025, 'a'), 0)), "has 1025 bytes; at most 1024 are allowed"},
      {kFirst + proto_field(2, 5), "field 2: is not a text or message"},
  };
  for (const auto& [proto, message] : cases) EXPECT_THAT(model_refusal(proto), HasSubstr(message));
}

TEST(SentencePieceFile, TheFingerprintDependsOnTokensOnly) {
  const auto fingerprint = [](const std::string& proto) { return read_model_file(proto).fingerprint(); };
  const std::string same = fingerprint(model_of(kBpe, kPieces));
  EXPECT_EQ(fingerprint(model_of(kBpe, kPieces) + proto_field(99, "more")), same);
  EXPECT_NE(fingerprint(model_of(kUnigram, kPieces)), same);
  EXPECT_NE(fingerprint(model_of(kBpe, kPieces, "", proto_field(3, 0))), same);
  EXPECT_NE(fingerprint(model_of(kBpe, kPieces + piece("c", -9))), same);
  EXPECT_NE(fingerprint(model_of(kBpe, kPieces, "", proto_field(2, small_charsmap()))), same);
}

TEST(SentencePieceFile, AFolderMayHaveOne) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "sentencepiece_folder";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  write("tokenizer.model", model_of(kBpe, kPieces));
  EXPECT_EQ(Tokenizer::load(folder).encode("ab"), (TokenIds{3, 6}));
  EXPECT_EQ(Tokenizer::load(folder / "tokenizer.model").fingerprint(), Tokenizer::load(folder).fingerprint());
  write("tokenizer_config.json", R"({"eos_token":{"content":"<x>"}})");
  EXPECT_EQ(Tokenizer::load(folder).end_of_document(), TokenId{8});
  write("added_tokens.json", R"({"<pad>":9})");
  EXPECT_THAT(message_of<DataError>([&] { Tokenizer::load(folder); }),
              AllOf(HasSubstr("added_tokens.json adds the token \"<pad>\""), HasSubstr("fix: ")));
  write("tokenizer_config.json", "{}");
  write("tokenizer.json", trained_json());
  EXPECT_EQ(Tokenizer::load(folder).encode("<x>").front(), Tokenizer::load(folder / "tokenizer.json").encode("<x>")[0]);
}

TEST(Protobuf, AnyBytesAreReadOrRefused) {
  const auto refusal = [](const std::string& bytes) {
    return message_of<DataError>([&] {
      for (ProtobufReader in(bytes, "x"); in.next();) {
      }
    });
  };
  EXPECT_EQ(refusal(proto_field(1, 300) + proto_field(2, "abc") + std::string("\x1D????\x21????????")), "no error");
  EXPECT_THAT(refusal("\x08"), HasSubstr("x: byte 0, field 1: ends in the middle of a number"));
  EXPECT_THAT(refusal(proto_field(1, 1) + "\x15???"), HasSubstr("x: byte 2, field 2: ends in the middle of a number"));
  EXPECT_THAT(refusal("\x0A\x05"
                      "abc"),
              HasSubstr("5 bytes, where only 3 are left"));
  EXPECT_THAT(refusal("\x0B"), HasSubstr("there is no type 3"));
  EXPECT_THAT(refusal(std::string("\0\0", 2)), HasSubstr("there is no field 0"));
  EXPECT_THAT(refusal("\x08" + std::string(10, '\x80') + "\x01"), HasSubstr("a number of more than 10 bytes"));
}

}  // namespace
}  // namespace trireme::data
