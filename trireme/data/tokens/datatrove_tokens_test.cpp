#include "trireme/data/tokens/datatrove_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A data set with arbitrary contents of its four files.
struct DatatroveSet {
  std::string tokens = bytes_of_numbers<std::uint16_t>({5, 6, 7, 8});
  std::string index = bytes_of_numbers<std::uint64_t>({1, 1, 4});
  std::string metadata = "gpt2|2\n4\n4.00 T";
  std::string loss = {};

  std::unique_ptr<TokenSource> open() const {
    write_bytes(folder / "x.ds", tokens);
    write_bytes(folder / "x.ds.index", index);
    write_bytes(folder / "x.ds.metadata", metadata);
    if (!loss.empty()) write_bytes(folder / "x.ds.loss", loss);
    return open_datatrove(folder / "x.ds");
  }
  std::string refusal() const {
    return message_of<DataError>([&] { open(); });
  }
  TempFolder folder{};
};

TEST(Datatrove, ReadsWhatDatatroveWrites) {
  const DatatroveSet set;
  const auto source = set.open();
  EXPECT_EQ(source->name(), (set.folder / "x.ds").string());
  EXPECT_EQ(source->num_documents(), 3);
  EXPECT_EQ(documents_of(*source), (Documents{{5}, {6, 7, 8}}));
  EXPECT_EQ(source->tokenizer_name(), "gpt2");
  EXPECT_EQ(source->tokenizer_fingerprint(), "");
  EXPECT_FALSE(source->has_loss_mask());
  const TokenPlace place = source->place(2);
  EXPECT_EQ(place.file, source->name());
  EXPECT_EQ(place.position, 2);
  EXPECT_EQ(place.document, 2);  // after the empty one
}

TEST(Datatrove, MetadataOfEveryAge) {
  const auto parsed = [](const std::string& metadata) { return parse_datatrove_metadata(metadata, "x"); };
  EXPECT_EQ(parsed("gpt2\n12\n12.0 T").type, TokenType::u16);  // older: without |2
  EXPECT_EQ(parsed("gpt2|4\n12\n12.0 T").type, TokenType::u32);
  EXPECT_EQ(parsed("Unknown Tokenizer|4|4\n12\n12.0 T").tokenizer.name, "Unknown Tokenizer|4");
  EXPECT_EQ(parsed("gpt2|2\r\n12\r\n12.0 T\r\n").num_tokens, 12);
  EXPECT_EQ(parsed("gpt2|2\n12").num_tokens, 12);
  EXPECT_EQ(parsed("gpt2|2\n12\n12.0 T\n0123456789abcdef\n").tokenizer.fingerprint, "0123456789abcdef");
  EXPECT_EQ(parsed("gpt2|2\n9223372036854775807").num_tokens, 9'223'372'036'854'775'807);
}

TEST(Datatrove, MetadataThatIsNone) {
  const auto refusal = [](const std::string& metadata) {
    return message_of<DataError>([&] { parse_datatrove_metadata(metadata, "x.metadata"); });
  };
  EXPECT_THAT(refusal(""), HasSubstr("x.metadata: line 2 is \"\"; it must be the number of tokens, below 2^63"));
  EXPECT_THAT(refusal("gpt2|3\n12"), HasSubstr("line 1 says that a token has \"3\" bytes; 2 or 4 are read"));
  EXPECT_THAT(refusal("gpt2|\n12"), HasSubstr("has \"\" bytes"));
  for (const char* count : {"-1", "+1", " 1", "1 ", "1.5", "0x10", "9223372036854775808", "many", "1\033[31m"})
    EXPECT_THAT(refusal(text("gpt2|2\n", count)), HasSubstr("line 2 is ")) << count;
  EXPECT_THAT(refusal("gpt2|2\n0"), HasSubstr("0 tokens; a data set must have at least one"));
  for (const char* line : {"0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "ghijklmnopqrstuv"})
    EXPECT_THAT(refusal(text("gpt2|2\n5\n5.00 T\n", line)), HasSubstr("line 4 is ")) << line;
}

TEST(Datatrove, CountsForPeopleAreAsDatatroveWritesThem) {
  const auto human = [](std::int64_t count) {
    const std::string metadata = datatrove_metadata_text({TokenType::u16, count, {}});
    return metadata.substr(metadata.rfind('\n') + 1);
  };
  EXPECT_EQ(human(4), "4.00 T");
  EXPECT_EQ(human(12), "12.0 T");
  EXPECT_EQ(human(999), "999 T");
  EXPECT_EQ(human(1'234), "1.23 kT");
  EXPECT_EQ(human(12'345'678), "12.3 MT");
  EXPECT_EQ(human(999'999), "1000 kT");
  EXPECT_EQ(human(1'500'000'000'000), "1.50 TT");
  EXPECT_EQ(datatrove_metadata_text({TokenType::u32, 4, {"a", "0123456789abcdef"}}),
            "a|4\n4\n4.00 T\n0123456789abcdef");
  EXPECT_EQ(datatrove_metadata_text({TokenType::u16, 4, {}}), "Unknown Tokenizer|2\n4\n4.00 T");
}

TEST(Datatrove, SizesMustAgree) {
  EXPECT_THAT(DatatroveSet{.tokens = "1234567"}.refusal(),
              HasSubstr("x.ds: 7 bytes, but its metadata says 4 tokens of 2 bytes\n  fix: fetch the data again"));
  EXPECT_THAT(DatatroveSet{.tokens = std::string(10, '\0')}.refusal(), HasSubstr("x.ds: 10 bytes, but"));
  EXPECT_THAT(DatatroveSet{.tokens = ""}.refusal(), HasSubstr("x.ds: 0 bytes, but"));
  EXPECT_THAT(DatatroveSet{.tokens = std::string(16, '\0')}.refusal(),  // older datatrove omitted it
              HasSubstr("fix: its tokens have 4 bytes: end line 1 of x.ds.metadata with |4"));
  EXPECT_THAT(DatatroveSet{.metadata = "gpt2|4\n4"}.refusal(), HasSubstr("fix: its tokens have 2 bytes"));
  // The count times 2 is 8 modulo 2^64.
  EXPECT_THAT(DatatroveSet{.metadata = "gpt2|2\n9223372036854775807"}.refusal(), HasSubstr("x.ds: 8 bytes, but"));
  EXPECT_THAT(DatatroveSet{.index = "1234567"}.refusal(),
              HasSubstr("x.ds.index: 7 bytes; it must hold 8 for each document, and at least one"));
  EXPECT_THAT(DatatroveSet{.index = ""}.refusal(), HasSubstr("x.ds.index: 0 bytes"));
  EXPECT_THAT(DatatroveSet{.loss = "\1\1\1"}.refusal(), HasSubstr("x.ds.loss: 3 bytes for 4 tokens"));
  EXPECT_THAT(DatatroveSet{.metadata = std::string(70'000, 'x')}.refusal(),
              HasSubstr("x.ds.metadata: 70000 bytes; at most 65536 are allowed"));
}

TEST(Datatrove, TheIndexMustAscendToTheLastToken) {
  const auto refusal = [](const std::vector<std::uint64_t>& ends) {
    return DatatroveSet{.index = bytes_of_numbers(ends)}.refusal();
  };
  EXPECT_THAT(refusal({3, 2, 4}), HasSubstr("x.ds.index: document 1 ends at token 2, the one before at 3"));
  EXPECT_THAT(refusal({1, 5}), HasSubstr("document 1 ends at token 5, the one before at 1"));
  EXPECT_THAT(refusal({1, 3}), HasSubstr("the last of 2 documents ends at token 3, but there are 4 tokens"));
  EXPECT_THAT(refusal({std::uint64_t{1} << 63, 4}), HasSubstr("document 0 ends at token 9223372036854775808"));
  EXPECT_THAT(refusal({0x0100000000000000, 0x0400000000000000}), HasSubstr("document 0 ends at token"));  // byte order
}

TEST(Datatrove, MissingFilesAreNamed) {
  for (const char* missing : {"x.ds.index", "x.ds.metadata"}) {
    const DatatroveSet set;
    set.open();
    std::filesystem::remove(set.folder / missing);
    EXPECT_THAT(
        message_of<DataError>([&] { open_datatrove(set.folder / "x.ds"); }),
        AllOf(HasSubstr(text("x.ds: there is no ", missing, " beside it")), HasSubstr("fix: copy it here too")));
    std::filesystem::create_directory(set.folder / missing);
    EXPECT_THAT(message_of<DataError>([&] { open_datatrove(set.folder / "x.ds"); }),
                HasSubstr(text(missing, " is not a regular file")));
  }
  EXPECT_THROW(open_datatrove("nowhere.ds"), DataError);
}

TEST(Datatrove, ALossMaskIsZeroOrOne) {
  const DatatroveSet set{.loss = std::string("\1\0\2\1", 4)};
  const auto source = set.open();
  std::vector<std::uint8_t> mask(2);
  source->read_loss_mask(0, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 0}));
  EXPECT_THAT(message_of<DataError>([&] { source->read_loss_mask(1, mask); }),
              HasSubstr("x.ds.loss: byte 2 is 2; a loss mask has 0 or 1 for each token"));
  EXPECT_THROW(source->read_loss_mask(3, mask), InternalError);
}

}  // namespace
}  // namespace trireme::data
