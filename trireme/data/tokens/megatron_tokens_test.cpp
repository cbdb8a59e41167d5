#include "trireme/data/tokens/megatron_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A data set with arbitrary header fields: three sequences in two documents.
struct MegatronSet {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  std::uint64_t version = 1;
  std::uint8_t type = 8;
  std::uint64_t sequences = 3, marks_count = 3;
  std::vector<std::int32_t> lengths = {2, 1, 3};
  std::vector<std::int64_t> offsets = {0, 4, 6}, marks = {0, 2, 3};
  std::string kinds = {};
  std::string bin = bytes_of_numbers<std::uint16_t>({1, 2, 3, 4, 5, 6});

  std::string index() const {
    std::string out = magic;
    files::append_little_endian(out, version);
    files::append_little_endian(out, type);
    files::append_little_endian(out, sequences);
    files::append_little_endian(out, marks_count);
    return out + bytes_of_numbers(lengths) + bytes_of_numbers(offsets) + bytes_of_numbers(marks) + kinds;
  }
  std::unique_ptr<TokenSource> open() const {
    write_bytes(folder / "x.idx", index());
    write_bytes(folder / "x.bin", bin);
    return open_megatron(folder / "x");
  }
  std::string refusal() const {
    return message_of<DataError>([&] { open(); });
  }
  TempFolder folder{};
};

TEST(Megatron, DocumentsMayHaveSeveralSequences) {
  const MegatronSet set;
  const auto source = set.open();
  EXPECT_EQ(source->num_documents(), 2);
  EXPECT_EQ(documents_of(*source), (Documents{{1, 2, 3}, {4, 5, 6}}));
  EXPECT_EQ(source->document_ends(0, 5), std::vector<std::int64_t>{3});
  EXPECT_EQ(source->place(3).document, 1);
  EXPECT_EQ(source->place(3).file, (set.folder / "x.bin").string());
  EXPECT_EQ(MegatronSet{.kinds = std::string(3, '\0')}.open()->num_tokens(), 6);
}

TEST(Megatron, EmptySequencesAndDocuments) {
  const auto source = MegatronSet{.sequences = 4,
                                  .marks_count = 6,
                                  .lengths = {0, 2, 0, 4},
                                  .offsets = {0, 0, 4, 4},
                                  .marks = {0, 0, 1, 2, 4, 4}}
                          .open();
  EXPECT_EQ(source->num_documents(), 5);
  EXPECT_EQ(documents_of(*source), (Documents{{1, 2}, {3, 4, 5, 6}}));
}

TEST(Megatron, EveryTypeOfToken) {
  const auto tokens = [](std::uint8_t type, std::int64_t size, const std::string& bin) {
    const MegatronSet set{.type = type, .offsets = {0, 2 * size, 3 * size}, .bin = bin};
    return all_tokens(*set.open());
  };
  const Ids wanted = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(tokens(1, 1, "\1\2\3\4\5\6"), wanted);
  EXPECT_EQ(tokens(2, 1, "\1\2\3\4\5\6"), wanted);
  EXPECT_EQ(tokens(3, 2, bytes_of_numbers<std::int16_t>({1, 2, 3, 4, 5, 6})), wanted);
  EXPECT_EQ(tokens(4, 4, bytes_of_numbers<std::int32_t>({1, 2, 3, 4, 5, 6})), wanted);
  EXPECT_EQ(tokens(5, 8, bytes_of_numbers<std::int64_t>({1, 2, 3, 4, 5, 6})), wanted);
  EXPECT_THAT(message_of<DataError>([&] { tokens(4, 4, bytes_of_numbers<std::int32_t>({1, 2, 3, -1, 5, 6})); }),
              HasSubstr("token -1 at position 3 of "));
  EXPECT_THAT(MegatronSet{.type = 6}.refusal(), HasSubstr("x.idx: tokens of type 6 (floating point); read are 1 (u8)"));
  EXPECT_THAT(MegatronSet{.type = 0}.refusal(), HasSubstr("tokens of type 0; read are"));
  EXPECT_THAT(MegatronSet{.type = 9}.refusal(), HasSubstr("tokens of type 9;"));
}

TEST(Megatron, HeadersThatAreNone) {
  EXPECT_THAT(MegatronSet{.magic = "MMIDIDX\0X"}.refusal(), HasSubstr("x.idx: does not begin with MMIDIDX"));
  EXPECT_THAT(MegatronSet{.version = 2}.refusal(), HasSubstr("x.idx: version 2; version 1 is read"));
  EXPECT_THAT(MegatronSet{.version = std::uint64_t{1} << 56}.refusal(), HasSubstr("most significant byte first"));
  const MegatronSet set;
  set.open();
  write_bytes(set.folder / "x.idx", set.index().substr(0, 33));
  EXPECT_THAT(message_of<DataError>([&] { open_megatron(set.folder / "x"); }),
              HasSubstr("x.idx: 33 bytes; the header alone has 34"));
}

TEST(Megatron, CountsMustFitTheSizeBeforeTheyAreUsed) {
  for (const std::uint64_t count : {std::uint64_t{0}, std::uint64_t{2}, std::uint64_t{4}, std::uint64_t{1} << 40,
                                    std::uint64_t{1} << 61, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_THAT(MegatronSet{.sequences = count}.refusal(),
                AllOf(HasSubstr("x.idx: "), HasSubstr("do not have this size")));
    EXPECT_THAT(MegatronSet{.marks_count = count}.refusal(), HasSubstr("do not have this size"));
  }
  // 12 * sequences is 36 modulo 2^64: an overflowing sum would accept it.
  EXPECT_THAT(MegatronSet{.sequences = (std::uint64_t{1} << 62) + 3}.refusal(), HasSubstr("do not have this size"));
  EXPECT_THAT(MegatronSet{.marks_count = (std::uint64_t{1} << 61) + 3}.refusal(), HasSubstr("do not have this size"));
  EXPECT_THAT(
      (MegatronSet{.sequences = 0, .marks_count = 1, .lengths = {}, .offsets = {}, .marks = {0}, .bin = ""}.refusal()),
      HasSubstr("there must be at least one document with a token"));
  EXPECT_THAT((MegatronSet{.marks_count = 1, .marks = {0}}.refusal()), HasSubstr("3 sequences and 1 marks"));
  EXPECT_THAT((MegatronSet{.lengths = {0, 0, 0}, .offsets = {0, 0, 0}, .bin = ""}.refusal()),
              HasSubstr("3 sequences without a token: an empty data set"));
}

TEST(Megatron, SequencesMustStandOneAfterTheOther) {
  const auto offsets = [](std::vector<std::int64_t> values) {
    return MegatronSet{.offsets = std::move(values)}.refusal();
  };
  EXPECT_THAT(offsets({2, 4, 6}),
              HasSubstr("x.idx: sequence 0 has 2 tokens and begins at byte 2 of the .bin file; it must "
                        "begin at byte 0, where the one before ends"));
  EXPECT_THAT(offsets({0, 6, 4}), HasSubstr("sequence 1 has 1 tokens and begins at byte 6"));
  EXPECT_THAT(offsets({0, 4, 8}), HasSubstr("sequence 2 "));  // a gap
  EXPECT_THAT(offsets({0, 4, -6}), HasSubstr("sequence 2 "));
  EXPECT_THAT((MegatronSet{.lengths = {2, -1, 5}, .offsets = {0, 4, 2}}.refusal()),
              HasSubstr("sequence 1 has -1 tokens"));
  EXPECT_THAT(MegatronSet{.bin = std::string(10, '\0')}.refusal(),
              HasSubstr("x.bin: 10 bytes, but its index has 6 tokens of type u16, which are 12"));
  EXPECT_THAT(MegatronSet{.bin = std::string(14, '\0')}.refusal(), HasSubstr("x.bin: 14 bytes"));
}

TEST(Megatron, DocumentsMustCoverTheSequences) {
  const auto marks = [](std::vector<std::int64_t> values) { return MegatronSet{.marks = std::move(values)}.refusal(); };
  EXPECT_THAT(marks({1, 2, 3}), HasSubstr("x.idx: the first document begins at sequence 1; it must begin at 0"));
  EXPECT_THAT(marks({0, 4, 3}), HasSubstr("mark 1 of documents is sequence 4, the one before 0"));
  EXPECT_THAT(marks({0, 2, 1}), HasSubstr("mark 2 of documents is sequence 1, the one before 2"));
  EXPECT_THAT(marks({0, -1, 3}), HasSubstr("mark 1 of documents is sequence -1"));
  EXPECT_THAT(marks({0, 1, 2}), HasSubstr("the last of 2 documents ends with sequence 2 of 3"));
  EXPECT_THAT(MegatronSet{.kinds = std::string("\0\1\0", 3)}.refusal(),
              HasSubstr("sequence 1 is not text (mode 1): multimodal data is not read"));
  EXPECT_THAT(MegatronSet{.kinds = "xx"}.refusal(), HasSubstr("do not have this size"));  // unknown extra bytes
}

TEST(Megatron, ManyDocumentsOfManySequencesAreFoundEachInItsPlace) {
  MegatronSet set{.lengths = {}, .offsets = {}, .marks = {0}, .bin = ""};
  std::vector<std::int64_t> ends;
  std::int64_t tokens = 0;
  for (std::int64_t document = 0; document < 1'500; ++document) {
    // Some blocks of documents have far more sequences than one read covers.
    const std::int64_t sequences = document / 512 == 1 ? 9 : 1;
    for (std::int64_t i = 0; i < sequences; ++i) {
      set.lengths.push_back(static_cast<std::int32_t>((document + i) % 3));
      set.offsets.push_back(2 * tokens);
      tokens += set.lengths.back();
    }
    set.marks.push_back(static_cast<std::int64_t>(set.lengths.size()));
    if (ends.empty() ? tokens > 0 : ends.back() != tokens) ends.push_back(tokens);
  }
  set.sequences = set.lengths.size();
  set.marks_count = set.marks.size();
  set.bin.resize(static_cast<std::size_t>(2 * tokens));
  EXPECT_EQ(set.open()->document_ends(0, tokens), ends);
}

TEST(Megatron, MissingFilesAreNamed) {
  for (const char* missing : {"x.idx", "x.bin"}) {
    const MegatronSet set;
    set.open();
    std::filesystem::remove(set.folder / missing);
    EXPECT_THAT(message_of<DataError>([&] { open_megatron(set.folder / "x"); }),
                HasSubstr(text("x: there is no ", (set.folder / missing).string(), "; Megatron's data is two files")));
  }
}

TEST(Megatron, TheTokenizerStandsBesideIt) {
  const MegatronSet set;
  write_bytes(set.folder / "x.tokenizer", "gpt2\n0123456789abcdef\n6\n");
  EXPECT_EQ(set.open()->tokenizer_fingerprint(), "0123456789abcdef");
  EXPECT_EQ(set.open()->tokenizer_name(), "gpt2");
  write_bytes(set.folder / "x.tokenizer", "gpt2\n0123456789abcdef\n7\n");
  EXPECT_THAT(set.refusal(), HasSubstr("x.tokenizer: line 3 is \"7\", but there are 6 tokens beside it"));
  write_bytes(set.folder / "x.tokenizer", "gpt2\n0123\n6\n");
  EXPECT_THAT(set.refusal(), HasSubstr("x.tokenizer: line 2 is \"0123\""));
  write_bytes(set.folder / "x.tokenizer", std::string(70'000, 'x'));
  EXPECT_THAT(set.refusal(), HasSubstr("x.tokenizer: 70000 bytes"));
}

}  // namespace
}  // namespace trireme::data
