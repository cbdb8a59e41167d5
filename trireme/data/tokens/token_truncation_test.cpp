// Truncated files: before they are opened, while they are open, and during reads.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

/// A data set with every file that the format can have; long enough for 1,000 different cuts of the larger ones.
void write_set_to_cut(TokenFormat format, const TempFolder& folder) {
  const bool masked = format == TokenFormat::datatrove;
  const auto writer = write_tokens(
      format, folder / "x", {.vocab_size = 50'257, .tokenizer = {"gpt2", "0123456789abcdef"}, .loss_mask = masked});
  for (std::uint32_t i = 0; i < 200; ++i) {
    const Ids ids(i % 11, i);
    const std::vector<std::uint8_t> mask(masked ? ids.size() : 0, 1);
    writer->append(ids, mask);
  }
  writer->finish();
}

std::vector<std::filesystem::path> files_of(const TempFolder& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

void read_everything(const TokenSource& source) {
  all_tokens(source);
  documents_of(source);
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(source.num_tokens()));
  source.read_loss_mask(0, mask);
}

/// Lengths to truncate to, largest first: all of them for a small file, else 1,000 spread over it.
std::vector<std::uint64_t> cuts_of(std::uint64_t size) {
  std::vector<std::uint64_t> cuts;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(size, 1'000); ++i)
    cuts.push_back(size <= 1'000 ? size - 1 - i : (999 - i) * (size - 1) / 999);
  return cuts;
}

TEST(Truncation, EveryCutIsAnErrorOrTheSameData) {
  for (const TokenFormat format : kTokenFormats) {
    const TempFolder folder;
    write_set_to_cut(format, folder);
    const auto whole = open_tokens(folder / "x");
    const Documents documents = documents_of(*whole);
    for (const std::filesystem::path& file : files_of(folder)) {
      const std::string contents = file_contents(file);
      int refused = 0, taken = 0;
      for (const std::uint64_t cut : cuts_of(contents.size())) {
        std::filesystem::resize_file(file, cut);
        try {
          const auto source = open_tokens(folder / "x");
          // A cut in the human-readable lines or the fingerprint keeps the data: but never yields a wrong fingerprint.
          EXPECT_EQ(documents_of(*source), documents) << file << " cut at " << cut;
          EXPECT_THAT(source->tokenizer_fingerprint(), ::testing::AnyOf("", whole->tokenizer_fingerprint()));
          ++taken;
        } catch (const DataError& error) {
          EXPECT_THAT(error.what(), HasSubstr(folder.path().string()));
          EXPECT_THAT(error.what(), HasSubstr("\n  fix: "));
          ++refused;
        }
      }
      write_bytes(file, contents);
      const bool is_text = file.extension() == ".metadata" || file.extension() == ".tokenizer";
      EXPECT_LE(taken, is_text ? 12 : 0) << file;
      EXPECT_GT(refused, 10) << file;
    }
    EXPECT_EQ(documents_of(*open_tokens(folder / "x")), documents);
  }
}

TEST(Truncation, BytesBehindTheEndAreErrors) {
  for (const TokenFormat format : kTokenFormats) {
    const TempFolder folder;
    write_set_to_cut(format, folder);
    for (const std::filesystem::path& file : files_of(folder)) {
      if (file.extension() == ".metadata" || file.extension() == ".tokenizer") continue;  // text: lines may follow
      const std::string contents = file_contents(file);
      for (const std::size_t more : {1u, 2u, 8u, 300u, 4096u}) {
        write_bytes(file, contents + std::string(more, '\0'));
        EXPECT_THROW(open_tokens(folder / "x"), DataError) << file << " with " << more << " bytes more";
      }
      write_bytes(file, contents);
    }
  }
}

TEST(Truncation, WhileOpenIsAnErrorAtTheNextRead) {
  for (const TokenFormat format : kTokenFormats) {
    const TempFolder folder;
    write_set_to_cut(format, folder);
    for (const std::filesystem::path& file : files_of(folder)) {
      if (file.extension() == ".metadata" || file.extension() == ".tokenizer") continue;  // read once
      const std::string contents = file_contents(file);
      for (const std::uint64_t cut : {std::uint64_t{0}, contents.size() / 2, contents.size() - 1}) {
        const auto source = open_tokens(folder / "x");
        read_everything(*source);
        std::filesystem::resize_file(file, cut);
        const std::string message = message_of<DataError>([&] { read_everything(*source); });
        EXPECT_THAT(message, HasSubstr(file.string()));
        EXPECT_THAT(message,
                    HasSubstr(text("had ", contents.size(), " bytes when it was opened and has ", cut, " now")));
        write_bytes(file, contents);
      }
    }
  }
}

TEST(Truncation, WhileOthersReadNeverGivesWrongTokens) {
  const TempFolder folder;
  const Ids ids(1'000'000, 7);  // a hole in a file, or a mapping past its end, would read as zeros
  write_documents(TokenFormat::datatrove, folder / "x", {ids});
  // Changes within one tick of the file system's clock, which may be 4 ms, would be undetectable.
  std::filesystem::last_write_time(folder / "x.ds",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const auto source = open_tokens(folder / "x");
  std::atomic<int> wrong = 0, good = 0, refused = 0;
  std::vector<std::jthread> readers;
  for (int i = 0; i < 2; ++i)
    readers.emplace_back([&] {
      for (Ids part(100'000); refused < 100;) {
        for (std::int64_t first = 0; first < 1'000'000; first += 100'000) {
          try {
            source->read(first, part);
            wrong += !std::ranges::all_of(part, [](std::uint32_t id) { return id == 7; });
            ++good;
          } catch (const DataError&) {
            ++refused;
          }
        }
      }
    });
  while (good < 20) std::this_thread::yield();
  for (const std::uint64_t bytes : {1'500'001u, 1'000'000u, 2'000'000u, 3u})
    std::filesystem::resize_file(folder / "x.ds", bytes);
  readers.clear();
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(refused, 100);
}

TEST(Truncation, ADataSetThatIsReplacedStaysWhatItWasForWhoReadsIt) {
  for (const TokenFormat format : kTokenFormats) {
    const TempFolder folder;
    write_documents(format, folder / "x", {{1, 2}, {3}});
    const auto before = open_tokens(folder / "x");
    write_documents(format, folder / "x", {{4, 5, 6, 7}});
    EXPECT_EQ(all_tokens(*before), (Ids{1, 2, 3}));
    EXPECT_EQ(all_tokens(*open_tokens(folder / "x")), (Ids{4, 5, 6, 7}));
  }
}

TEST(Truncation, ADataSetThatIsWrittenToInPlaceIsAnError) {
  const TempFolder folder;
  write_documents(TokenFormat::llmc, folder / "x", {{1, 2, 3}});
  std::filesystem::last_write_time(folder / "x.bin",
                                   std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const auto source = open_tokens(folder / "x");
  EXPECT_EQ(all_tokens(*source), (Ids{1, 2, 3}));
  std::fstream(folder / "x.bin", std::ios::in | std::ios::out | std::ios::binary).seekp(-2, std::ios::end).put('\4');
  EXPECT_THAT(message_of<DataError>([&] { all_tokens(*source); }),
              HasSubstr("x.bin: was changed while it was being read"));
}

}  // namespace
}  // namespace trireme::data
