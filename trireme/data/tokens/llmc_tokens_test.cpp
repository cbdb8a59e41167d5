#include "trireme/data/tokens/llmc_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

struct LlmcFile {
  std::int32_t magic = 20240520, version = 1, count = 4;
  std::string tokens = bytes_of_numbers<std::uint16_t>({5, 0, 7, 8});
  std::optional<std::uint32_t> document_end = {};

  std::unique_ptr<TokenSource> open() const {
    std::vector<std::int32_t> header(256);
    header[0] = magic;
    header[1] = version;
    header[2] = count;
    write_bytes(folder / "x.bin", bytes_of_numbers(header) + tokens);
    return open_llmc(folder / "x.bin", document_end);
  }
  std::string refusal() const {
    return message_of<DataError>([&] { open(); });
  }
  TempFolder folder{};
};

TEST(Llmc, BothKinds) {
  EXPECT_EQ(all_tokens(*LlmcFile{}.open()), (Ids{5, 0, 7, 8}));
  const LlmcFile wide{.magic = 20240801, .version = 7, .tokens = bytes_of_numbers<std::uint32_t>({5, 128'000, 7, 8})};
  EXPECT_EQ(all_tokens(*wide.open()), (Ids{5, 128'000, 7, 8}));
}

TEST(Llmc, DocumentsEndBehindAGivenToken) {
  EXPECT_EQ(LlmcFile{}.open()->num_documents(), 1);
  EXPECT_EQ(documents_of(*LlmcFile{}.open()), (Documents{{5, 0, 7, 8}}));
  const auto source = LlmcFile{.document_end = 0}.open();
  EXPECT_EQ(source->num_documents(), 2);
  EXPECT_EQ(documents_of(*source), (Documents{{5, 0}, {7, 8}}));
  EXPECT_EQ(source->place(1).document, 0);
  EXPECT_EQ(source->place(2).document, 1);
}

TEST(Llmc, HeadersThatAreNone) {
  EXPECT_THAT(LlmcFile{.magic = 20240326}.refusal(),
              HasSubstr("x.bin: begins with 20240326; a token file of llm.c begins with 20240520 or 20240801"));
  EXPECT_THAT(LlmcFile{.magic = static_cast<std::int32_t>(0x88d83401)}.refusal(),
              HasSubstr("most significant byte first"));
  EXPECT_THAT(LlmcFile{.version = 2}.refusal(), HasSubstr("magic number 20240520 with version 2; version 1 is read"));
  EXPECT_THAT((LlmcFile{.magic = 20240801, .version = 1}.refusal()), HasSubstr("version 7 is read"));
  EXPECT_THAT(LlmcFile{.count = 0}.refusal(), HasSubstr("0 tokens by its header; there must be at least one"));
  EXPECT_THAT(LlmcFile{.count = -4}.refusal(), HasSubstr("-4 tokens by its header"));
  for (const std::int32_t count : {3, 5, 2'147'483'647})
    EXPECT_THAT(LlmcFile{.count = count}.refusal(),
                HasSubstr(text("x.bin: 1032 bytes, but ", count, " tokens of 2 bytes")));
  const TempFolder folder;
  write_bytes(folder / "x.bin", std::string(1'023, '\0'));
  EXPECT_THAT(message_of<DataError>([&] { open_llmc(folder / "x.bin"); }),
              HasSubstr("x.bin: 1023 bytes; the header alone has 1024"));
}

TEST(Llmc, TheTokenizerStandsBesideIt) {
  const LlmcFile file;
  write_bytes(file.folder / "x.tokenizer", "gpt2\n0123456789abcdef\n4\n");
  EXPECT_EQ(file.open()->tokenizer_fingerprint(), "0123456789abcdef");
}

}  // namespace
}  // namespace trireme::data
