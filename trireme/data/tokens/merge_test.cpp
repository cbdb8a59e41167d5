#include "trireme/data/tokens/merge.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/inspect.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/testing/documents.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kOne = "0123456789abcdef", kOther = "fedcba9876543210";

TokenWriterOptions made_by(const std::string& fingerprint) {
  return {.vocab_size = 1'000,
          .tokenizer = {.name = "t", .fingerprint = fingerprint},
          .loss_mask = false,
          .before_step = {}};
}

class MergeTokens : public testing::Test {
 protected:
  MergeTokens() {
    write_documents(TokenFormat::datatrove, folder_ / "a.ds", {{1, 2, 3}, {}, {4}}, made_by(kOne));
    write_documents(TokenFormat::megatron, folder_ / "b", {{5, 999}}, made_by(kOne));
    write_documents(TokenFormat::llmc, folder_ / "c.bin", {{6, 7, 0}, {8, 0}}, made_by(kOne));
    options_.inputs = {at("a.ds"), at("b"), at("c.bin")};
    options_.out = folder_ / "out";
    options_.document_end = 0;
  }
  std::string at(const std::string& name) { return (folder_ / name).string(); }

  TempFolder folder_;
  MergeOptions options_;
};

TEST_F(MergeTokens, DocumentsOfAllFormatsIntoAllFormats) {
  const Documents all = {{1, 2, 3}, {4}, {5, 999}, {6, 7, 0}, {8, 0}};
  for (const auto& [format, name] :
       {std::pair(TokenFormat::datatrove, "out.ds"), std::pair(TokenFormat::megatron, "out"),
        std::pair(TokenFormat::llmc, "llmc.bin")}) {
    options_.format = format;
    options_.out = folder_ / name;
    const Merged merged = merge_tokens(options_);
    EXPECT_EQ(merged.documents, 5);
    EXPECT_EQ(merged.tokens, 11);
    const auto source = open_tokens(folder_ / name);
    EXPECT_EQ(source->tokenizer_fingerprint(), kOne);
    EXPECT_EQ(source->storage().format, trireme::data::name(format));
    EXPECT_EQ(source->storage().token_bytes, 2);
    if (format == TokenFormat::llmc)
      EXPECT_EQ(documents_of(*source).size(), 1U);
    else
      EXPECT_EQ(documents_of(*source), all);
  }
}

TEST_F(MergeTokens, FourBytesStayFourBytes) {
  TokenWriterOptions wide = made_by(kOne);
  wide.vocab_size = 100'000;
  write_documents(TokenFormat::datatrove, folder_ / "wide.ds", {{1}}, wide);
  options_.inputs.push_back(at("wide.ds"));
  merge_tokens(options_);
  EXPECT_EQ(open_tokens(folder_ / "out.ds")->storage().token_bytes, 4);
}

TEST_F(MergeTokens, MasksAreKeptAndFilledUp) {
  TokenWriterOptions masked = made_by(kOne);
  masked.loss_mask = true;
  const auto writer = write_tokens(TokenFormat::datatrove, folder_ / "m.ds", masked);
  writer->append(Ids{1, 2, 3}, std::vector<std::uint8_t>{0, 1, 0});
  writer->finish();
  options_.inputs = {at("m.ds"), at("b")};
  merge_tokens(options_);
  std::vector<std::uint8_t> mask(5);
  open_tokens(folder_ / "out.ds")->read_loss_mask(0, mask);
  EXPECT_THAT(mask, ElementsAre(0, 1, 0, 1, 1));
  options_.format = TokenFormat::megatron;
  EXPECT_THROW(merge_tokens(options_), DataError);
}

TEST_F(MergeTokens, DifferentTokenizersAreRefusedUnlessForced) {
  write_documents(TokenFormat::datatrove, folder_ / "d.ds", {{1}}, made_by(kOther));
  options_.inputs.push_back(at("d.ds"));
  try {
    merge_tokens(options_);
    ADD_FAILURE() << "was not refused";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.ds and "));
    EXPECT_THAT(error.what(), HasSubstr("d.ds were made by different tokenizers"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.ds"));
  options_.force = true;
  merge_tokens(options_);
  EXPECT_EQ(open_tokens(folder_ / "out.ds")->tokenizer_fingerprint(), "");
}

TEST_F(MergeTokens, OneOfItsInputsMayBeReplaced) {
  options_.inputs = {at("a.ds"), at("a.ds")};
  options_.out = folder_ / "a.ds";
  merge_tokens(options_);
  EXPECT_EQ(documents_of(*open_tokens(folder_ / "a.ds")), Documents({{1, 2, 3}, {4}, {1, 2, 3}, {4}}));
}

TEST_F(MergeTokens, StopsAndLeavesNothing) {
  EXPECT_THROW(merge_tokens(options_, {.progress = [](const DataProgress&) {}, .stopped = [] { return true; }}),
               Interrupted);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.ds"));
}

TEST_F(MergeTokens, InspectCounts) {
  const auto source = open_tokens(folder_ / "a.ds");
  const TokenReport report = inspect_tokens(*source);
  EXPECT_EQ(report.num_documents, 2);
  EXPECT_EQ(report.shortest, 1);
  EXPECT_EQ(report.longest, 3);
  EXPECT_EQ(report.min_id, 1U);
  EXPECT_EQ(report.max_id, 4U);
  EXPECT_EQ(report.counting_tokens, 4);
  EXPECT_EQ(report.lengths[0], 1);
  EXPECT_EQ(report.lengths[1], 1);
  const auto shown = first_documents(*source, 1, 2);
  ASSERT_EQ(shown.size(), 1U);
  EXPECT_EQ(shown[0].num_tokens, 3);
  EXPECT_THAT(shown[0].ids, ElementsAre(1, 2));
}

TEST_F(MergeTokens, InspectReadsDocumentsOverItsParts) {
  Documents documents;
  for (std::uint32_t i = 0; i < 5; ++i) documents.emplace_back(150'000 + i, i);
  write_documents(TokenFormat::datatrove, folder_ / "long.ds", documents);
  const TokenReport report = inspect_tokens(*open_tokens(folder_ / "long.ds"));
  EXPECT_EQ(report.num_documents, 5);
  EXPECT_EQ(report.shortest, 150'000);
  EXPECT_EQ(report.longest, 150'004);
  EXPECT_EQ(report.lengths[17], 5);
}

}  // namespace
}  // namespace trireme::data
