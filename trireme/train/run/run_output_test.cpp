#include "trireme/train/run/run_output.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/testing/file_size_limit.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Steps of a run whose disk is full from time to time.
class RunOnAFullDisk : public testing::Test {
 protected:
  void step(std::int64_t number) { output_.step({.step = number, .steps = 9, .loss = 2, .grad_norm = 1}); }

  fs::path event_file() const { return fs::directory_iterator(folder_ / "tb")->path(); }

  std::vector<std::int64_t> recorded_steps() const {
    std::vector<std::int64_t> steps;
    std::ifstream file(folder_ / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) steps.push_back(nlohmann::json::parse(line).at("step"));
    return steps;
  }
  /// The number of whole records; -1 if the last one is cut.
  int whole_events() const {
    const std::string bytes = file_contents(event_file());
    int count = 0;
    for (std::size_t at = 0; at < bytes.size(); ++count) {
      std::uint64_t length = 0;
      if (at + sizeof length > bytes.size()) return -1;
      std::copy_n(bytes.data() + at, sizeof length, reinterpret_cast<char*>(&length));
      at += sizeof length + 4 + length + 4;
      if (at > bytes.size()) return -1;
    }
    return count;
  }

  const TempFolder folder_;
  std::ostringstream out_;
  RunOutput output_{Config{}, folder_.path(), out_, {}};
};

TEST_F(RunOnAFullDisk, GoesOnAndSaysWhatIsMissing) {
  step(1);
  {
    // A few bytes of the next record still fit, as on a real disk.
    const auto size = std::min(fs::file_size(folder_ / "metrics.jsonl"), fs::file_size(event_file()));
    const FileSizeLimit full(size + 7);
    for (std::int64_t i = 2; i <= 4; ++i) step(i);
  }
  EXPECT_THAT(recorded_steps(), testing::ElementsAre(1)) << "no half line";
  step(5);
  step(6);
  EXPECT_THAT(recorded_steps(), testing::ElementsAre(1, 5, 6));
  EXPECT_EQ(whole_events(), 1 + 3) << "the version, and the same steps";
  output_.finish({});
  const std::string said = out_.str();
  const auto times = [&](const std::string& words) {
    int count = 0;
    for (std::size_t at = 0; (at = said.find(words, at)) != std::string::npos; ++at) ++count;
    return count;
  };
  for (const std::string file : {"metrics.jsonl", "tb/"}) {
    EXPECT_EQ(times(file + ": a record is lost, training continues: "), 1) << said;
    EXPECT_EQ(times(file + " is written again; 3 records are missing"), 1) << said;
    EXPECT_EQ(times(file + " is missing 3 records: they could not be written"), 1) << said;
  }
}

TEST_F(RunOnAFullDisk, SaysNothingOfAGoodDisk) {
  step(1);
  output_.finish({});
  EXPECT_THAT(out_.str(), testing::Not(HasSubstr("record")));
}

}  // namespace
}  // namespace trireme
