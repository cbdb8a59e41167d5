#include "trireme/data/prepare/document_reader.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/documents.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

using Found = std::vector<std::pair<std::string, std::int64_t>>;  // text and line

Found read_all(const std::vector<std::string>& inputs, TextCut cut, std::size_t batch_bytes = 1 << 20) {
  DocumentReader reader(input_files(inputs), cut, batch_bytes);
  Found found;
  TextBatch batch;
  while (reader.next(batch)) {
    EXPECT_FALSE(batch.pieces.empty());
    for (const DocumentText& piece : batch.pieces) found.emplace_back(batch.text(piece), piece.line);
  }
  EXPECT_EQ(batch.taken, reader.disk_bytes());
  EXPECT_FALSE(reader.next(batch)) << "the end stays the end";
  return found;
}

std::string written(const TempFolder& folder, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories((folder / name).parent_path());
  write_bytes(folder / name, name.ends_with(".gz") ? gzip(bytes) : bytes);
  return (folder / name).string();
}

TEST(DocumentReader, LinesCountFromOneAndBlankOnesAreNone) {
  const TempFolder folder;
  const std::string words = "one\n\n two \r\n   \nthree";
  for (const std::string name : {"a.txt", "a.jsonl", "b.txt.gz", "b.json.gz"})
    EXPECT_THAT(read_all({written(folder, name, words)}, TextCut::lines),
                ElementsAre(Pair("one", 1), Pair(" two ", 3), Pair("three", 5)))
        << name;
}

TEST(DocumentReader, JsonIsCutByLinesWhateverTextIs) {
  const TempFolder folder;
  EXPECT_THAT(read_all({written(folder, "a.jsonl", "1\n2\n")}, TextCut::file), ElementsAre(Pair("1", 1), Pair("2", 2)));
}

TEST(DocumentReader, AFileIsADocumentAsItIs) {
  const TempFolder folder;
  const std::string a = written(folder, "a.txt", "one\r\n\ntwo\n"), b = written(folder, "b.md.gz", "three"),
                    empty = written(folder, "c.txt", "");
  EXPECT_THAT(read_all({b, a, empty}, TextCut::file),
              ElementsAre(Pair("three", 1), Pair("one\r\n\ntwo\n", 1), Pair("", 1)));
}

TEST(DocumentReader, BlankLinesPartDocuments) {
  const TempFolder folder;
  EXPECT_THAT(read_all({written(folder, "a.txt", "\n\none\n two\n\t\n\nthree\r\nfour\r\n")}, TextCut::blank_lines),
              ElementsAre(Pair("one\n two", 3), Pair("three\r\nfour", 7)));
}

TEST(DocumentReader, AByteOrderMarkIsNoText) {
  const TempFolder folder;
  const std::string words = "\xEF\xBB\xBFone";
  EXPECT_THAT(read_all({written(folder, "a.txt", words)}, TextCut::file), ElementsAre(Pair("one", 1)));
  EXPECT_THAT(read_all({written(folder, "a.jsonl", words)}, TextCut::file), ElementsAre(Pair("one", 1)));
}

TEST(DocumentReader, FoldersAreReadInOrderWithoutWhatIsHidden) {
  const TempFolder folder;
  written(folder, "in/b.txt", "b");
  written(folder, "in/a/z.txt", "z");
  written(folder, "in/a/c.txt.gz", "c");
  written(folder, "in/.git/x.txt", "no");
  written(folder, "in/.x.txt", "no");
  EXPECT_THAT(read_all({(folder / "in").string()}, TextCut::file),
              ElementsAre(Pair("c", 1), Pair("z", 1), Pair("b", 1)));
}

/// Reference: splits by the definition, on the whole text at once.
Found by_definition(const std::string& words, TextCut cut) {
  Found found;
  std::string document;
  std::int64_t first = 0, line = 0;
  const auto end = [&] {
    if (first > 0) found.emplace_back(document, first);
    first = 0;
  };
  std::istringstream lines(words);
  for (std::string each; std::getline(lines, each);) {
    ++line;
    std::string bare = each;
    if (bare.ends_with('\r')) bare.pop_back();
    if (bare.find_first_not_of(" \t\r\v\f") == std::string::npos) {
      end();
    } else {
      if (first == 0) {
        first = line;
        document.clear();
      }
      document += each + '\n';
    }
    if (first > 0 && cut == TextCut::lines) end();
  }
  end();
  for (auto& [one, number] : found) {  // the newline of the last line
    one.pop_back();
    if (one.ends_with('\r')) one.pop_back();
  }
  return found;
}

RC_GTEST_PROP(DocumentReader, BatchesOfAnySizeGiveTheSameDocuments, ()) {
  const auto words = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab \n\n\n\r")));
  const auto batch_bytes = *rc::gen::inRange<std::size_t>(1, 20);
  const TempFolder folder;
  for (const std::string name : {"a.txt", "b.txt.gz"}) {
    const std::string path = written(folder, name, words);
    for (const TextCut cut : {TextCut::lines, TextCut::blank_lines})
      RC_ASSERT(read_all({path}, cut, batch_bytes) == by_definition(words, cut));
    RC_ASSERT(read_all({path, path}, TextCut::file, batch_bytes) == Found({{words, 1}, {words, 1}}));
  }
}

TEST(DocumentReader, ALongLineIsReadWhole) {
  const TempFolder folder;
  const std::string line(5'000'000, 'x');
  const Found found = read_all({written(folder, "a.jsonl.gz", "one\n" + line + "\ntwo\n")}, TextCut::lines);
  ASSERT_EQ(found.size(), 3U);
  EXPECT_TRUE(found[1].first == line);
  EXPECT_THAT(found[2], Pair("two", 3));
}

std::string fault(const std::vector<std::string>& inputs) {
  try {
    read_all(inputs, TextCut::file);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(DocumentReader, WhatCannotBeReadIsNamed) {
  const TempFolder folder;
  EXPECT_THAT(fault({(folder / "no.txt").string()}), HasSubstr("no.txt: there is no such file or folder"));
  EXPECT_THAT(fault({folder.path().string()}), HasSubstr("there is no file of text"));
  EXPECT_THAT(fault({"/dev/null"}), HasSubstr("is not a file that can be read twice"));
  EXPECT_THAT(fault({written(folder, "x.parquet", "PAR1")}), HasSubstr("x.parquet: is not text by its name"));
  EXPECT_THAT(fault({written(folder, "x.ds", "")}), HasSubstr("trireme data merge"));
  std::string cut = gzip(std::string(100'000, 'a') + "b");
  cut.pop_back();
  write_bytes(folder / "cut.txt.gz", cut);
  EXPECT_THAT(fault({(folder / "cut.txt.gz").string()}), HasSubstr("cut.txt.gz: cut short"));
}

}  // namespace
}  // namespace trireme::data
