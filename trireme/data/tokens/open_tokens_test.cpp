#include "trireme/data/tokens/open_tokens.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string open_refusal(const std::filesystem::path& path) {
  return message_of<DataError>([&] { open_tokens(path); });
}

TEST(OpenTokens, FindsOutTheFormat) {
  const TempFolder folder;
  write_documents(TokenFormat::datatrove, folder / "d", {{1}});
  write_documents(TokenFormat::megatron, folder / "m.v1", {{2}});
  write_documents(TokenFormat::llmc, folder / "l", {{3}});
  const auto opened = [&](const char* name) { return all_tokens(*open_tokens(folder / name)); };
  EXPECT_EQ(opened("d.ds"), Ids{1});
  EXPECT_EQ(opened("d"), Ids{1});
  EXPECT_EQ(opened("m.v1"), Ids{2});
  EXPECT_EQ(opened("m.v1.idx"), Ids{2});
  EXPECT_EQ(opened("m.v1.bin"), Ids{2});
  EXPECT_EQ(opened("l.bin"), Ids{3});
  EXPECT_EQ(opened("l"), Ids{3});
}

TEST(OpenTokens, SaysWhatIsThereAndWhatWouldBeAccepted) {
  const TempFolder folder;
  write_documents(TokenFormat::datatrove, folder / "d", {{1}});
  EXPECT_THAT(
      open_refusal(folder / "none"),
      AllOf(HasSubstr("none: there is no such file or folder, and no "), HasSubstr("none.idx, .ds or .bin"),
            HasSubstr("accepted: x.ds (datatrove), x for x.idx and x.bin (Megatron), x.bin (llm.c), a folder")));
  EXPECT_THAT(open_refusal(folder / "d.ds.index"), HasSubstr("d.ds.index: is a part of "));
  EXPECT_THAT(open_refusal(folder / "d.ds.metadata"), HasSubstr("fix: name " + (folder / "d.ds").string()));
  write_bytes(folder / "x.parquet", "PAR1");
  EXPECT_THAT(open_refusal(folder / "x.parquet"), HasSubstr("x.parquet: is not a token file by its name"));
  const TempFolder empty;
  EXPECT_THAT(open_refusal(empty.path()), HasSubstr(": no token files in this folder"));
  EXPECT_THAT(open_refusal(empty / "*.bin"), HasSubstr("*.bin: no token files match"));
  EXPECT_THAT(open_refusal(empty / "no/*.bin"), HasSubstr("no: cannot be read: No such file or directory"));
}

TEST(OpenTokens, AFolderIsItsFilesInTheOrderOfTheirNames) {
  for (const TokenFormat format : kTokenFormats) {
    const TempFolder folder;
    write_documents(format, folder / "00002", {{6}, {7, 8}}, {.vocab_size = 100'000});  // u32 after u16
    write_documents(format, folder / "00000", {{1, 2}, {3}}, {.tokenizer = {"t", "0123456789abcdef"}});
    write_documents(format, folder / "00001", {{4, 5}});
    write_bytes(folder / ".hidden.ds", "");
    write_bytes(folder / "README.md", "");
    write_bytes(folder / "all.ds.metadata", "datatrove writes one for the whole folder");
    std::filesystem::create_directory(folder / "other.ds");
    const auto source = open_tokens(folder.path());
    EXPECT_EQ(source->name(), folder.path().string());
    EXPECT_EQ(all_tokens(*source), (Ids{1, 2, 3, 4, 5, 6, 7, 8}));
    EXPECT_EQ(source->tokenizer_fingerprint(), "0123456789abcdef");
    EXPECT_EQ(source->num_documents(), format == TokenFormat::llmc ? 3 : 5);
    const TokenPlace place = source->place(6);
    EXPECT_THAT(place.file, HasSubstr("00002"));
    EXPECT_EQ(place.position, 1);
    EXPECT_EQ(place.document, format == TokenFormat::llmc ? 0 : 1);
    EXPECT_THROW(source->place(8), InternalError);
    EXPECT_THROW(source->document_ends(7, 2), InternalError);
  }
}

TEST(OpenTokens, OneBadFileOfAFolderIsNamed) {
  const TempFolder folder;
  for (const char* shard : {"a", "b", "c"}) write_documents(TokenFormat::datatrove, folder / shard, {{1, 2}});
  std::filesystem::resize_file(folder / "b.ds", 2);
  EXPECT_THAT(open_refusal(folder.path()), HasSubstr((folder / "b.ds").string() + ": 2 bytes"));
  std::filesystem::remove(folder / "b.ds");
  std::filesystem::create_symlink("nowhere", folder / "b.ds");
  EXPECT_THAT(open_refusal(folder.path()), HasSubstr("b.ds: cannot be opened"));
}

TEST(OpenTokens, AFolderHasOneFormatAndOneTokenizer) {
  const TempFolder folder;
  write_documents(TokenFormat::datatrove, folder / "a", {{1}}, {.tokenizer = {"t", "0123456789abcdef"}});
  write_documents(TokenFormat::megatron, folder / "b", {{1}});
  EXPECT_THAT(open_refusal(folder.path()),
              HasSubstr(": holds a.ds (datatrove) and b.idx (megatron); the files of a folder "
                        "must be of one format"));
  EXPECT_EQ(all_tokens(*open_tokens(folder / "*.ds")), Ids{1});
  EXPECT_EQ(all_tokens(*open_tokens(folder / "b.*")), Ids{1});
  write_documents(TokenFormat::datatrove, folder / "c", {{1}}, {.tokenizer = {"u", "0123456789abcdee"}});
  EXPECT_THAT(open_refusal(folder / "*.ds"), AllOf(HasSubstr("its files were made by different tokenizers"),
                                                   HasSubstr("a.ds by \"t\", fingerprint 0123456789abcdef"),
                                                   HasSubstr("c.ds by \"u\", fingerprint 0123456789abcdee")));
}

TEST(OpenTokens, TrainingAndValidationDataAreNotMixed) {
  const TempFolder folder;
  write_documents(TokenFormat::llmc, folder / "web_train_000001", {{1}});
  write_documents(TokenFormat::llmc, folder / "web_train_000002", {{2}});
  write_documents(TokenFormat::llmc, folder / "web_val_000000", {{3}});
  EXPECT_THAT(open_refusal(folder.path()),
              AllOf(HasSubstr("holds web_train_000001.bin and web_val_000000.bin: training and validation data"),
                    HasSubstr("fix: name one kind by a pattern: " + (folder / "*_train_*.bin").string())));
  EXPECT_EQ(all_tokens(*open_tokens(folder / "*_train_*.bin")), (Ids{1, 2}));
  EXPECT_EQ(all_tokens(*open_tokens(folder / "web_val_00000?.bin")), Ids{3});
}

TEST(OpenTokens, WhatPrepareHeldOutIsNotMixedIn) {
  for (const TokenFormat format : {TokenFormat::datatrove, TokenFormat::megatron}) {
    const TempFolder folder;
    const std::string ending = format == TokenFormat::megatron ? "_text_document" : "";
    write_documents(format, folder / ("x-validation" + ending), {{1}});
    EXPECT_EQ(all_tokens(*open_tokens(folder.path())), Ids{1}) << "alone it is a data set like others";
    write_documents(format, folder / ("x" + ending), {{2}});
    EXPECT_THAT(open_refusal(folder.path()), AllOf(HasSubstr(": holds x" + ending), HasSubstr(" and x-validation"),
                                                   HasSubstr("training and validation data")));
  }
}

RC_GTEST_PROP(OpenTokens, ShardsAreOneRow, ()) {
  const TempFolder folder;
  Ids flat;
  std::vector<std::uint8_t> mask;
  std::vector<std::int64_t> ends;
  const int shards = *rc::gen::inRange(1, 5);
  for (int shard = 0; shard < shards; ++shard) {
    const bool masked = shard % 2 == 0;
    const auto writer =
        write_tokens(TokenFormat::datatrove, folder / std::to_string(shard), {.vocab_size = 100, .loss_mask = masked});
    const int documents = *rc::gen::inRange(1, 4);
    for (int i = 0; i < documents; ++i) {
      const Ids ids(*rc::gen::inRange<std::size_t>(i == 0 ? 1 : 0, 5), static_cast<std::uint32_t>(flat.size()) % 100);
      const std::vector<std::uint8_t> bits(ids.size(), masked ? static_cast<std::uint8_t>(i % 2) : 1);
      writer->append(ids, masked ? std::span(bits) : std::span<const std::uint8_t>());
      flat.insert(flat.end(), ids.begin(), ids.end());
      mask.insert(mask.end(), bits.begin(), bits.end());
      if (!ids.empty()) ends.push_back(static_cast<std::int64_t>(flat.size()));
    }
    writer->finish();
  }
  const auto source = open_tokens(folder.path());
  RC_ASSERT(source->has_loss_mask());
  const auto size = static_cast<std::int64_t>(flat.size());
  RC_ASSERT(source->num_tokens() == size);
  const auto first = *rc::gen::inRange<std::int64_t>(0, size + 1);
  const auto count = *rc::gen::inRange<std::int64_t>(0, size - first + 1);
  Ids ids(static_cast<std::size_t>(count));
  std::vector<std::uint8_t> bits(ids.size());
  source->read(first, ids);
  source->read_loss_mask(first, bits);
  RC_ASSERT(ids == Ids(flat.begin() + first, flat.begin() + first + count));
  RC_ASSERT(bits == std::vector<std::uint8_t>(mask.begin() + first, mask.begin() + first + count));
  std::erase_if(ends, [&](std::int64_t end) { return end <= first || end > first + count; });
  RC_ASSERT(source->document_ends(first, count) == ends);
}

}  // namespace
}  // namespace trireme::data
