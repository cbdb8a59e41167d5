#include "trireme/data/tokens/token_writer.hpp"

#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/testing/documents.hpp"
#include "trireme/testing/file_size_limit.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

const TokenizerRecord kTokenizer{"gpt2/tokenizer.json", "0123456789abcdef"};

std::set<std::string> files_in(const TempFolder& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.insert(entry.path().filename());
  return names;
}

rc::Gen<Documents> some_documents(std::int64_t vocab_size) {
  const auto id = rc::gen::map(rc::gen::arbitrary<std::uint64_t>(), [vocab_size](std::uint64_t bits) {
    const auto size = static_cast<std::uint64_t>(vocab_size);
    return static_cast<std::uint32_t>(bits % 3 == 0 ? size - 1 : bits / 3 % size);
  });
  return rc::gen::suchThat(rc::gen::container<Documents>(rc::gen::container<Ids>(id)),
                           [](const Documents& documents) { return !without_empty(documents).empty(); });
}

RC_GTEST_PROP(TokenWriter, WhatIsWrittenIsRead, ()) {
  const TempFolder folder;
  const TokenFormat format = *rc::gen::elementOf(kTokenFormats);
  const auto vocab_size =
      *rc::gen::element<std::int64_t>(2, 256, 65'499, 65'500, 65'536, 65'537, std::int64_t{1} << 31);
  const Documents documents = *some_documents(vocab_size);
  const bool with_tokenizer = *rc::gen::arbitrary<bool>();
  write_documents(format, folder / "x", documents,
                  {.vocab_size = vocab_size, .tokenizer = with_tokenizer ? kTokenizer : TokenizerRecord{}});
  const auto source = open_tokens(folder / "x");
  Ids flat;
  for (const Ids& ids : documents) flat.insert(flat.end(), ids.begin(), ids.end());
  RC_ASSERT(all_tokens(*source) == flat);
  if (format == TokenFormat::llmc) {
    RC_ASSERT(source->num_documents() == 1);
  } else {
    RC_ASSERT(source->num_documents() == static_cast<std::int64_t>(documents.size()));
    RC_ASSERT(documents_of(*source) == without_empty(documents));
  }
  RC_ASSERT(source->tokenizer_fingerprint() == (with_tokenizer ? kTokenizer.fingerprint : ""));
  const auto first = *rc::gen::inRange<std::size_t>(0, flat.size());
  Ids part(*rc::gen::inRange<std::size_t>(0, flat.size() - first + 1));
  source->read(static_cast<std::int64_t>(first), part);
  RC_ASSERT(std::equal(part.begin(), part.end(), flat.begin() + static_cast<std::ptrdiff_t>(first)));
}

TEST(TokenWriter, TheVocabularyDecidesTheWidth) {
  const TempFolder folder;
  const auto width = [&](TokenFormat format, std::int64_t vocab_size, const std::string& file) {
    write_documents(format, folder / "x", {{1}}, {.vocab_size = vocab_size});
    return std::filesystem::file_size(folder / file) % 1024;  // without the llm.c header
  };
  EXPECT_EQ(width(TokenFormat::datatrove, 65'536, "x.ds"), 2u);
  EXPECT_EQ(width(TokenFormat::datatrove, 65'537, "x.ds"), 4u);
  EXPECT_EQ(width(TokenFormat::megatron, 65'499, "x.bin"), 2u);
  EXPECT_EQ(width(TokenFormat::megatron, 65'500, "x.bin"), 4u);
  EXPECT_EQ(width(TokenFormat::llmc, 65'536, "x.bin"), 2u);
  EXPECT_EQ(width(TokenFormat::llmc, 65'537, "x.bin"), 4u);
}

TEST(TokenWriter, UnfinishedLeavesNothingAndKeepsTheOldDataSet) {
  for (const TokenFormat format : kTokenFormats) {
    const TempFolder folder;
    {
      const auto writer = write_tokens(format, folder / "x", {.vocab_size = 10, .tokenizer = kTokenizer});
      writer->append(Ids{1, 2});
      EXPECT_THROW(open_tokens(folder / "x"), DataError);
      EXPECT_THROW(open_tokens(folder.path()), DataError);
    }
    EXPECT_EQ(files_in(folder), std::set<std::string>{});
    write_documents(format, folder / "x", {{7}}, {.tokenizer = kTokenizer});
    const auto before = files_in(folder);
    write_tokens(format, folder / "x", {.vocab_size = 10})->append(Ids{1, 2});
    EXPECT_EQ(files_in(folder), before);
    EXPECT_EQ(all_tokens(*open_tokens(folder / "x")), Ids{7});
  }
}

TEST(TokenWriter, AFullDiskLeavesNothingAndKeepsTheOldDataSet) {
  const Ids many(2'000'000, 3);
  for (const TokenFormat format : kTokenFormats) {
    const TempFolder folder;
    write_documents(format, folder / "x", {{7}});
    const auto before = files_in(folder);
    for (const std::size_t limit_bytes : {0u, 1'000u, 2'000'000u}) {
      const std::string message = message_of<DataError>([&] {
        const FileSizeLimit limit(limit_bytes);
        write_documents(format, folder / "x", {many, many});
      });
      EXPECT_THAT(message,
                  testing::ContainsRegex("bytes: File too large, ulimit -f allows .*\n  fix: ulimit -f unlimited"));
      EXPECT_EQ(files_in(folder), before);
    }
    EXPECT_EQ(all_tokens(*open_tokens(folder / "x")), Ids{7});
  }
}

TEST(TokenWriter, AfterAnErrorItCannotBeFinished) {
  const TempFolder folder;
  const auto writer = write_tokens(TokenFormat::datatrove, folder / "x", {.vocab_size = 10});
  {
    const FileSizeLimit limit(1'000);
    EXPECT_THROW(writer->append(Ids(1'000'000, 1)), DataError);
  }
  EXPECT_THROW(writer->append(Ids{1}), InternalError);
  EXPECT_THROW(writer->finish(), InternalError);
  EXPECT_FALSE(files::is_there(folder / "x.ds"));
}

/// A crash between any two steps of publishing: what opens is the complete old or the complete new data set.
TEST(TokenWriter, ACrashNeverLeavesAMix) {
  struct Crash {};
  const Documents old_documents = {{1, 2, 3}, {4}}, new_documents = {{5, 6}, {7, 8}};  // same token count: equal sizes
  for (const TokenFormat format : kTokenFormats) {
    for (const bool had_tokenizer : {false, true}) {
      for (const bool has_tokenizer : {false, true}) {
        bool finished = false;
        for (int crash_at = 0; !finished; ++crash_at) {
          const TempFolder folder;
          const TokenizerRecord older{"old", "00000000000000aa"};
          write_documents(
              format, folder / "x", old_documents,
              {.vocab_size = 50'257, .tokenizer = had_tokenizer ? older : TokenizerRecord{}, .before_step = {}});
          int step = 0;
          const auto crash = [&] {
            if (step++ == crash_at) throw Crash();
          };
          try {
            write_documents(format, folder / "x", new_documents,
                            {.tokenizer = has_tokenizer ? kTokenizer : TokenizerRecord{}, .before_step = crash});
            finished = true;
          } catch (const Crash&) {
          }
          for (const std::filesystem::path& path : {folder / "x", folder.path()}) {
            try {
              const auto source = open_tokens(path);
              const Ids ids = all_tokens(*source);
              const bool is_new = ids == Ids{5, 6, 7, 8};
              EXPECT_TRUE(is_new || ids == (Ids{1, 2, 3, 4}));
              EXPECT_TRUE(!finished || is_new);
              if (format != TokenFormat::llmc) {
                EXPECT_EQ(documents_of(*source), is_new ? new_documents : old_documents);
              }
              const std::string wanted =
                  is_new ? (has_tokenizer ? kTokenizer.fingerprint : "") : (had_tokenizer ? older.fingerprint : "");
              EXPECT_THAT(source->tokenizer_fingerprint(), ::testing::AnyOf(wanted, ""));
            } catch (const DataError&) {
              EXPECT_FALSE(finished);
            }
          }
        }
      }
    }
  }
}

TEST(TokenWriter, AnOldLossMaskGoesWithItsData) {
  const TempFolder folder;
  const auto writer = write_tokens(TokenFormat::datatrove, folder / "x", {.vocab_size = 10, .loss_mask = true});
  writer->append(Ids{1, 2, 3}, std::vector<std::uint8_t>{1, 0, 1});
  writer->append(Ids{}, {});
  writer->append(Ids{4}, std::vector<std::uint8_t>{0});
  writer->finish();
  EXPECT_EQ(writer->num_documents(), 3);
  EXPECT_EQ(writer->num_tokens(), 4);
  const auto source = open_tokens(folder / "x.ds");
  ASSERT_TRUE(source->has_loss_mask());
  std::vector<std::uint8_t> mask(3);
  source->read_loss_mask(1, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{0, 1, 0}));
  write_documents(TokenFormat::datatrove, folder / "x", {{1, 2, 3, 4}});
  const auto plain = open_tokens(folder / "x.ds");
  EXPECT_FALSE(plain->has_loss_mask());
  plain->read_loss_mask(1, mask);
  EXPECT_EQ(mask, (std::vector<std::uint8_t>{1, 1, 1}));
}

TEST(TokenWriter, RefusesWhatHasNoPlace) {
  const TempFolder folder;
  const auto refusal = [&](TokenFormat format, TokenWriterOptions options, const Documents& documents) {
    return message_of<DataError>([&] {
      const auto writer = write_tokens(format, folder / "x", options);
      for (const Ids& ids : documents) writer->append(ids);
      writer->finish();
    });
  };
  EXPECT_THAT(refusal(TokenFormat::llmc, {.vocab_size = 0}, {}), HasSubstr("vocab_size = 0; the format llmc has room"));
  EXPECT_THAT(refusal(TokenFormat::megatron, {.vocab_size = (std::int64_t{1} << 31) + 1}, {}),
              HasSubstr("room for 1 to 2147483648"));
  EXPECT_THAT(refusal(TokenFormat::llmc, {.vocab_size = 9, .loss_mask = true}, {}),
              HasSubstr("no place for a loss mask"));
  EXPECT_THAT(refusal(TokenFormat::datatrove, {.vocab_size = 50'257}, {{1}, {2, 50'257}}),
              HasSubstr("x.ds: token 50,257 of document 1 is outside the vocabulary (vocab_size = 50,257)"));
  EXPECT_THAT(refusal(TokenFormat::datatrove, {.vocab_size = 9, .tokenizer = {"two\nlines", ""}}, {}),
              HasSubstr("has control characters"));
  for (const TokenFormat format : kTokenFormats) {
    EXPECT_THAT(refusal(format, {.vocab_size = 9}, {}), HasSubstr("nothing to write"));
    EXPECT_THAT(refusal(format, {.vocab_size = 9}, {{}, {}}), HasSubstr("2 documents, none with a token"));
  }
  EXPECT_EQ(files_in(folder), std::set<std::string>{});
  EXPECT_THROW(write_tokens(TokenFormat::llmc, folder / "no/x", {.vocab_size = 9}), ConfigError);
}

TEST(TokenWriter, FormatsHaveNames) {
  for (const TokenFormat format : kTokenFormats) EXPECT_EQ(token_format(name(format)), format);
  EXPECT_EQ(token_format("parquet"), std::nullopt);
}

}  // namespace
}  // namespace trireme::data
