#include "trireme/data/prepare/prepare.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/base/gzip.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/data/prepare/corpus_words.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/testing/documents.hpp"
#include "trireme/testing/file_size_limit.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr TokenId kEnd = 256;  // of the tokenizer "bytes"

Ids bytes_of_text(std::string_view words) {
  Ids ids;
  for (const char c : words) ids.push_back(static_cast<unsigned char>(c));
  ids.push_back(kEnd);
  return ids;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

/// A folder with documents "document 0 ..." in JSON lines, text and compressed files, and a place for the output.
class Prepare : public testing::Test {
 protected:
  Prepare() {
    fs::create_directory(folder_ / "in");
    fs::create_directory(folder_ / "out");
    std::string lines;
    for (int i = 0; i < kDocuments; ++i) {
      texts_.push_back(
          text("document ", i, " \"", std::string(static_cast<std::size_t>(i * 37 % 101), 'x'), "\" \u00e9\n"));
      lines += text("{\"id\": ", i, ", \"text\": ", json_string(texts_.back()), "}\n");
    }
    write_bytes(folder_ / "in/a.jsonl", lines);
    options_.inputs = inputs();
    options_.out = folder_ / "out/x";
  }

  TextInputs inputs() { return find_inputs({(folder_ / "in").string()}); }
  Prepared run() {
    options_.inputs = inputs();
    return prepare(options_, tokenizer_);
  }
  Documents written(const std::string& name = "x.ds") { return documents_of(*open_tokens(folder_ / ("out/" + name))); }
  Documents expected() {
    Documents documents;
    for (const std::string& each : texts_) documents.push_back(bytes_of_text(each));
    return documents;
  }
  std::string fault() {
    try {
      run();
    } catch (const Error& error) {
      EXPECT_TRUE(names_in(folder_ / "out").empty()) << "nothing may be left";
      return error.what();
    }
    return "none";
  }
  void add(const std::string& name, const std::string& bytes) { write_bytes(folder_ / ("in/" + name), bytes); }

  static constexpr int kDocuments = 2'000;
  TempFolder folder_;
  std::vector<std::string> texts_;
  PrepareOptions options_;
  Tokenizer tokenizer_ = Tokenizer::load("bytes");
};

TEST_F(Prepare, EveryDocumentInItsPlace) {
  const Prepared made = run();
  EXPECT_EQ(written(), expected());
  EXPECT_EQ(made.documents, kDocuments);
  EXPECT_EQ(made.tokens, static_cast<std::int64_t>(made.text_bytes) + kDocuments);
  EXPECT_EQ(made.read_bytes, fs::file_size(folder_ / "in/a.jsonl"));
  EXPECT_EQ(open_tokens(folder_ / "out/x.ds")->tokenizer_fingerprint(), tokenizer_.fingerprint());
  EXPECT_THAT(names_in(folder_ / "out"), ElementsAre("x.ds", "x.ds.index", "x.ds.metadata"));
}

TEST_F(Prepare, WorkersDecideNothing) {
  add("b.txt.gz", gzip("a text\n\nwith lines\n"));
  options_.shuffle = true;
  options_.validation = 0.2;
  std::vector<std::string> contents;
  for (const int workers : {1, 2, 3, 7}) {
    options_.workers = workers;
    run();
    std::string all;
    for (const std::string& name : names_in(folder_ / "out")) all += name + file_contents(folder_ / ("out/" + name));
    contents.push_back(all);
  }
  EXPECT_EQ(std::set(contents.begin(), contents.end()).size(), 1U);
}

TEST_F(Prepare, ShufflingIsAPermutationOfTheSeed) {
  const auto shuffled = [&](std::uint64_t seed) {
    options_.shuffle = true;
    options_.seed = seed;
    run();
    return written();
  };
  const Documents one = shuffled(1), two = shuffled(2);
  EXPECT_EQ(shuffled(1), one);
  EXPECT_NE(one, two);
  EXPECT_NE(one, expected());
  Documents sorted = one, all = expected();
  std::ranges::sort(sorted);
  std::ranges::sort(all);
  EXPECT_EQ(sorted, all);
  EXPECT_THAT(names_in(folder_ / "out"), ElementsAre("x.ds", "x.ds.index", "x.ds.metadata"));
}

TEST_F(Prepare, ValidationTakesItsShareAndNothingTwice) {
  options_.validation = 0.1;
  const Prepared made = run();
  ASSERT_EQ(made.sets.size(), 2U);
  EXPECT_EQ(made.sets[1].path, folder_ / "out/x-validation.ds");
  Documents train = written(), held = written("x-validation.ds"), all = expected();
  EXPECT_NEAR(static_cast<double>(held.size()), 0.1 * kDocuments, 60);
  EXPECT_EQ(made.sets[0].documents, std::ssize(train));
  // Depends only on the index: a data set that is prepared again with other texts holds out the same documents.
  Documents chosen;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (RandomStream(0, "documents for validation").uniform(i) < 0.1) chosen.push_back(all[i]);
  EXPECT_EQ(held, chosen);
  train.insert(train.end(), held.begin(), held.end());
  std::ranges::sort(train);
  std::ranges::sort(all);
  EXPECT_EQ(train, all);
  options_.seed = 5;
  run();
  EXPECT_NE(written("x-validation.ds"), held);
  options_.seed = 0;
  options_.shuffle = true;  // the choice of held-out documents is independent of the order
  run();
  Documents again = written("x-validation.ds");
  EXPECT_NE(again, held);
  std::ranges::sort(again);
  std::ranges::sort(held);
  EXPECT_EQ(again, held);
}

TEST_F(Prepare, AShareThatTakesNothingIsAnError) {
  options_.validation = 1e-9;
  EXPECT_THAT(fault(), HasSubstr("takes 0 of 2,000 documents"));
  options_.validation = 1;
  EXPECT_THAT(fault(), HasSubstr("--validation 1"));
}

TEST_F(Prepare, FormatsHaveTheirNames) {
  options_.format = TokenFormat::megatron;
  EXPECT_EQ(run().sets[0].path, folder_ / "out/x_text_document");
  EXPECT_EQ(written("x_text_document"), expected());
  EXPECT_THAT(names_in(folder_ / "out"),
              ElementsAre("x_text_document.bin", "x_text_document.idx", "x_text_document.tokenizer"));
  options_.format = TokenFormat::llmc;
  EXPECT_EQ(run().sets[0].path, folder_ / "out/x.bin");
  EXPECT_EQ(documents_of(*open_tokens(folder_ / "out/x.bin", {.document_end = kEnd})), expected());
  options_.format = TokenFormat::datatrove;
  options_.out = folder_ / "out/y.ds";
  EXPECT_EQ(run().sets[0].path, folder_ / "out/y.ds");
}

TEST_F(Prepare, KeyAndEndOfDocumentAreChosen) {
  fs::remove(folder_ / "in/a.jsonl");
  add("b.jsonl", "{\"text\": \"no\", \"body\": \"yes\"}\n");
  options_.documents.key = "body";
  options_.append_end = false;
  run();
  EXPECT_EQ(written(), Documents({{'y', 'e', 's'}}));
}

TEST_F(Prepare, EmptyDocumentsAreCountedAndLeftOut) {
  add("b.jsonl", "{\"text\": \"\"}\n{\"text\": \"last\"}\n{\"text\": \"\"}\n");
  const Prepared made = run();
  EXPECT_EQ(made.empty, 2);
  EXPECT_EQ(made.documents, kDocuments + 1);
  EXPECT_EQ(written().back(), bytes_of_text("last"));
}

TEST_F(Prepare, BytesThatAreNoTextPassThrough) {
  add("b.txt", "\xff\xfd\x80");
  run();
  EXPECT_EQ(written().back(), bytes_of_text("\xff\xfd\x80"));
}

TEST_F(Prepare, TheFirstBadLineIsNamedWhateverTheWorkers) {
  std::string lines = file_contents(folder_ / "in/a.jsonl");
  add("b.jsonl", lines + "{\"text\": 5}\n" + lines + "nonsense\n{\"txt\": \"x\"}\n");
  for (options_.workers = 1; options_.workers < 5; ++options_.workers)
    EXPECT_THAT(fault(), HasSubstr("in/b.jsonl:2001: the value of \"text\" is not a string\n  fix: "));
  options_.documents.skip_bad = true;
  const Prepared made = run();
  EXPECT_EQ(made.bad.count, 3);
  EXPECT_THAT(made.bad.first, HasSubstr("in/b.jsonl:2001: "));
  EXPECT_EQ(made.documents, 3 * kDocuments);
}

TEST_F(Prepare, WithoutAnyDocumentNothingIsWritten) {
  fs::remove(folder_ / "in/a.jsonl");
  add("b.jsonl", "{\"text\": \"\"}\nnonsense\n");
  options_.documents.skip_bad = true;
  EXPECT_THAT(fault(), HasSubstr("no document with a token in it (1 empty, 1 bad)\n  the first bad one: "));
  add("b.jsonl.gz", gzip("{\"text\": \"one\"}\n").substr(0, 20));
  EXPECT_THAT(fault(), HasSubstr("b.jsonl.gz: cut short"));
}

TEST_F(Prepare, ADiskThatIsFullLeavesBothOldSets) {
  options_.validation = 0.5;
  run();
  const Documents train = written(), held = written("x-validation.ds");
  options_.seed = 3;
  {
    const FileSizeLimit limit(100'000);
    EXPECT_THROW(run(), DataError);
  }
  EXPECT_EQ(written(), train);
  EXPECT_EQ(written("x-validation.ds"), held);
  EXPECT_EQ(names_in(folder_ / "out").size(), 6U);
}

TEST_F(Prepare, StopsAtAnyMomentAndLeavesNothing) {
  options_.shuffle = true;
  options_.validation = 0.5;
  int asked = 0;
  for (int moment = 0;; moment += 97) {
    asked = 0;
    try {
      prepare(options_, tokenizer_,
              {.progress = [](const DataProgress&) {}, .stopped = [&] { return ++asked > moment; }});
    } catch (const Interrupted&) {
      EXPECT_TRUE(names_in(folder_ / "out").empty());
      continue;
    }
    EXPECT_GT(moment, kDocuments) << "it asks for every document that it shuffles";
    break;
  }
  EXPECT_EQ(names_in(folder_ / "out").size(), 6U);
}

TEST_F(Prepare, FoldersAreMadeAndTakenAwayAgain) {
  options_.out = folder_ / "out/deep/er/x";
  add("b.jsonl", "nonsense");
  EXPECT_THAT(fault(), HasSubstr("b.jsonl:1"));
  options_.documents.skip_bad = true;
  run();
  EXPECT_EQ(written("deep/er/x.ds"), expected());
}

TEST_F(Prepare, ProgressGoesToTheEnd) {
  DataProgress last;
  const Prepared made =
      prepare(options_, tokenizer_,
              {.progress = [&](const DataProgress& now) { last = now; }, .stopped = [] { return false; }});
  EXPECT_EQ(last.taken, last.of);
  EXPECT_EQ(last.tokens, made.tokens);
}

TEST_F(Prepare, ANewTokenizerIsTheSameForAllWorkersAndIsWrittenAlong) {
  std::set<std::string> made;
  BpeTrainOptions training;
  training.vocab_size = 300;
  for (const int workers : {1, 2, 5}) {
    CorpusCounts counts;
    made.insert(tokenizer_json(train_bpe_on_files(
        {.inputs = options_.inputs, .cut = TextCut::file, .documents = {}, .workers = workers}, training, counts)));
    EXPECT_EQ(counts.documents, kDocuments);
  }
  ASSERT_EQ(made.size(), 1U);
  options_.tokenizer_json = *made.begin();
  tokenizer_ = Tokenizer::from_json(options_.tokenizer_json, tokenizer_file(options_).string());
  run();
  const Tokenizer loaded = Tokenizer::load(folder_ / "out/x-tokenizer.json");
  EXPECT_EQ(loaded.fingerprint(), open_tokens(folder_ / "out/x.ds")->tokenizer_fingerprint());
  EXPECT_EQ(loaded.decode(written()[7]), texts_[7] + "<|endoftext|>");
}

}  // namespace
}  // namespace trireme::data
