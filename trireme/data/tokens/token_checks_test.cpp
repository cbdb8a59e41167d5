#include "trireme/data/tokens/token_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CheckTokenizer, AnotherTokenizerIsNamedWithItsFingerprint) {
  const TempFolder folder;
  write_documents(TokenFormat::megatron, folder / "web", {{1}},
                  {.tokenizer = {"meta-llama/Meta-Llama-3-8B", "41aa9e0741aa9e07"}});
  const auto source = open_tokens(folder / "web");
  EXPECT_NO_THROW(check_tokenizer(*source, "elsewhere.json", "41aa9e0741aa9e07"));  // the name is not compared
  EXPECT_NO_THROW(check_tokenizer(*source, "unknown", ""));
  EXPECT_THAT(
      message_of<DataError>([&] { check_tokenizer(*source, "gpt2/tokenizer.json", "9f3c01d29f3c01d2"); }),
      AllOf(StartsWith((folder / "web").string() + " was made by a different tokenizer than the run's\n"),
            HasSubstr("\n  the data says tokenizer \"meta-llama/Meta-Llama-3-8B\", fingerprint 41aa9e0741aa9e07; "
                      "[tokenizer] path is \"gpt2/tokenizer.json\", fingerprint 9f3c01d29f3c01d2\n"),
            HasSubstr("\n  fix: set tokenizer.path to the one that made the data"),
            HasSubstr("trireme data prepare TEXT.jsonl -t gpt2/tokenizer.json -o " + (folder / "web").string())));
  write_documents(TokenFormat::megatron, folder / "plain", {{1}});
  EXPECT_NO_THROW(check_tokenizer(*open_tokens(folder / "plain"), "gpt2/tokenizer.json", "9f3c01d29f3c01d2"));
}

TEST(CheckVocabulary, AnIdOutsideIsNamedWithItsPlace) {
  const TempFolder folder;
  Documents documents(3, Ids(2'000, 7));
  documents[2][1] = 128'001;
  std::filesystem::create_directory(folder / "web");
  write_documents(TokenFormat::datatrove, folder / "web/a", {Ids(1'000, 3)});
  write_documents(TokenFormat::datatrove, folder / "web/b", documents,
                  {.vocab_size = 128'256, .tokenizer = {"llama3", "41aa9e0741aa9e07"}});
  const auto source = open_tokens(folder / "web");
  Ids ids(3'000);
  source->read(3'000, ids);
  EXPECT_THAT(message_of<DataError>([&] { check_vocabulary(*source, 3'000, ids, 50'257); }),
              AllOf(StartsWith("token 128,001 at position 4,001 of " + (folder / "web/b.ds").string() +
                               " (document 2, both from 0) is outside the vocabulary (vocab_size = 50,257)\n"),
                    HasSubstr("\n  the data says tokenizer \"llama3\", fingerprint 41aa9e0741aa9e07\n"),
                    HasSubstr("\n  fix: set tokenizer.path and model.vocab_size")));
  EXPECT_NO_THROW(check_vocabulary(*source, 3'000, ids, 128'002));
  EXPECT_THROW(check_vocabulary(*source, 3'000, ids, 128'001), DataError);
  EXPECT_NO_THROW(check_vocabulary(*source, 0, {}, 1));
}

/// A source that is not a file.
class Numbers : public TokenSource {
 public:
  const std::string& name() const override { return name_; }
  std::int64_t num_tokens() const override { return 5; }
  std::int64_t num_documents() const override { return 1; }
  void read(std::int64_t first, std::span<std::uint32_t> out) const override {
    for (auto& id : out) id = static_cast<std::uint32_t>(first++);
  }
  std::vector<std::int64_t> document_ends(std::int64_t, std::int64_t) const override { return {}; }

 private:
  std::string name_ = "numbers";
};

TEST(CheckVocabulary, TheLargestIdsToo) {
  const Numbers numbers;
  const Ids ids = {0, 4'294'967'295, 2'147'483'648};
  EXPECT_THAT(
      message_of<DataError>([&] { check_vocabulary(numbers, 0, ids, 50'257); }),
      StartsWith(
          "token 4,294,967,295 at position 1 of numbers is outside the vocabulary (vocab_size = 50,257)\n  fix"));
  EXPECT_NO_THROW(check_vocabulary(numbers, 0, ids, std::int64_t{1} << 32));
}

}  // namespace
}  // namespace trireme::data
