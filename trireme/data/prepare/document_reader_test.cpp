#include "trireme/data/prepare/document_reader.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/gzip.hpp"
#include "trireme/data/prepare/input_files.hpp"
#include "trireme/testing/documents.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

using Found = std::vector<std::pair<std::string, std::int64_t>>;  // text and line

Found read_all(const std::vector<std::string>& inputs, TextCut cut, std::size_t batch_bytes = 1 << 20) {
  DocumentReader reader(find_inputs(inputs).files, cut, batch_bytes);
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
    const std::string copy = written(folder, "copy-" + name, words);
    RC_ASSERT(read_all({path, copy}, TextCut::file, batch_bytes) == Found({{words, 1}, {words, 1}}));
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
  EXPECT_THAT(fault({written(folder, "x.parquet", "PAR1")}),
              HasSubstr("x.parquet: is not text: a parquet file\n  fix: "));
  written(folder, "x.ds.metadata", "");
  EXPECT_THAT(fault({written(folder, "x.ds", "")}), HasSubstr("trireme data merge"));
  std::string cut = gzip(std::string(100'000, 'a') + "b");
  cut.pop_back();
  write_bytes(folder / "cut.txt.gz", cut);
  EXPECT_THAT(fault({(folder / "cut.txt.gz").string()}), HasSubstr("cut.txt.gz: cut short"));
}

TEST(DocumentReader, AListIsCutIntoItsElementsInBatchesOfAnySize) {
  const TempFolder folder;
  const std::string list = "\xEF\xBB\xBF [\n {\"a\": \"],\\\"\\\\\"}, [1, 2],\n\n3 ,\"x\"] \n";
  for (const std::string name : {"a.json", "b.jsonl.gz"})
    for (std::size_t bytes = 1; bytes < 40; ++bytes)
      ASSERT_THAT(read_all({written(folder, name, list)}, TextCut::file, bytes),
                  ElementsAre(Pair("{\"a\": \"],\\\"\\\\\"}", 2), Pair("[1, 2]", 2), Pair("3 ", 4), Pair("\"x\"", 4)))
          << name << bytes;
  EXPECT_TRUE(read_all({written(folder, "a.json", "[ ]")}, TextCut::file).empty());
  EXPECT_THAT(fault({written(folder, "a.json", "[{},\n{}")}), HasSubstr("a.json:2: the list has no end"));
  EXPECT_THAT(fault({written(folder, "a.json", "[{}]\n{}")}), HasSubstr("a.json:2: there is text behind the end"));
}

TEST(DocumentReader, WhatIsTextIsDecidedByContent) {
  using namespace std::string_literals;
  const TempFolder folder;
  const std::string in = folder.path().string();
  written(folder, "a.bin", "text\n");
  written(folder, "b.txt", "not\0text"s);
  written(folder, "c.md", "latin \xE9\n");
  written(folder, "d.txt", "\x1b[31mred\x01");          // UTF-8, whatever is in it
  written(folder, "e.dat", "\x01\x02\xFF\xFE binary");  // neither UTF-8 nor a text's control characters
  written(folder, "f.txt", "\xFF\xFEt\0e\0"s);
  written(folder, "g.json", "{\n  \"one\": 1\n}\n");
  written(folder, "h.text", gzip("zipped"));
  written(folder, "deep/i.ds", "x");
  written(folder, "deep/i.ds.metadata", "x");
  const TextInputs found = find_inputs({in});
  std::vector<std::string> taken, skipped;
  for (const InputFile& file : found.files) taken.push_back(file.path.lexically_relative(in).string());
  for (const SkippedFile& file : found.skipped)
    skipped.push_back(file.path.lexically_relative(in).string() + ": " + file.why);
  EXPECT_THAT(taken, ElementsAre("a.bin", "c.md", "d.txt", "h.text"));
  EXPECT_THAT(skipped, ElementsAre("b.txt: binary", "deep/i.ds: part of a token data set",
                                   "deep/i.ds.metadata: part of a token data set", "e.dat: binary",
                                   "f.txt: UTF-16 text", "g.json: one JSON object over several lines"));
  EXPECT_EQ(read_all({in + "/h.text"}, TextCut::file), Found({{"zipped", 1}}));
}

TEST(DocumentReader, PatternsChooseTheFilesOfAFolder) {
  const TempFolder folder;
  for (const char* name : {"a.py", "a.md", "sub/b.py", "sub/c.txt"}) written(folder, name, name);
  const auto names = [&](const InputFilter& filter) {
    std::vector<std::string> out;
    for (const InputFile& file : find_inputs({folder.path().string()}, filter).files)
      out.push_back(file.path.lexically_relative(folder.path()).string());
    return out;
  };
  EXPECT_THAT(names({{"*.py"}, {}}), ElementsAre("a.py", "sub/b.py"));
  EXPECT_THAT(names({{"*.py", "*.md"}, {"sub/*"}}), ElementsAre("a.md", "a.py"));
  EXPECT_THAT(names({{}, {"*.txt"}}), ElementsAre("a.md", "a.py", "sub/b.py"));
  EXPECT_THROW(names({{"*.rs"}, {}}), DataError);
}

}  // namespace
}  // namespace trireme::data
