#include "trireme/metrics/hub_logger.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme::metrics {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

constexpr milliseconds kPatience(20'000);  // for a machine under load; nothing here takes that long

/// A run folder with an event folder `tb`, a fake hub `hub`, and a log whose lines can be inspected.
class HubLoggerTest : public testing::Test {
 protected:
  HubLoggerTest() { std::filesystem::create_directory(folder_ / "hub"); }

  /// Creates a shell script to use as the upload command.
  std::string script(const std::string& name, const std::string& body) {
    const std::filesystem::path path = folder_ / name;
    std::ofstream(path) << "#!/bin/sh\n" << body;
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path.string();
  }
  HubOptions options(std::vector<std::string> command, std::int64_t every_calls = 1) {
    return {.folder = folder_ / "tb",
            .upload_command = std::move(command),
            .every_calls = every_calls,
            .close_timeout = kPatience};
  }
  std::string uploads() const {
    const auto path = folder_ / "hub/uploads";
    return std::filesystem::exists(path) ? file_contents(path) : "";
  }
  void wait_for_upload() const {
    const auto deadline = steady_clock::now() + kPatience;
    while (uploads().empty() && steady_clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
  }
  static void log_step(HubLogger& logger, std::int64_t step) { logger.add_scalars_from_list({{"loss", 1.0}}, step); }
  /// Keeps logging until there is a warning in the log.
  void log_until_warned(HubLogger& logger) {
    const auto deadline = steady_clock::now() + kPatience;
    for (std::int64_t step = 0; lines_.str().empty() && steady_clock::now() < deadline; ++step) {
      log_step(logger, step);
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  TempFolder folder_;
  std::ostringstream lines_;
  Log log_{stream_sink(lines_)};
  // Records each upload and copies the events.
  const std::string good_ = script("good", "echo \"$1\" >> \"$2/uploads\"\ncp \"$1\"/* \"$2\"\n");
};

TEST_F(HubLoggerTest, WithoutACommandOnlyWritesEvents) {
  HubLogger logger(options({}), log_);
  log_step(logger, 1);
  EXPECT_GT(std::filesystem::file_size(logger.path()), 50U);
  EXPECT_EQ(logger.close(), std::nullopt);
}

TEST_F(HubLoggerTest, CloseUploadsAllThatWasWritten) {
  HubLogger logger(options({good_, "{dir}", (folder_ / "hub").string()}, 1000), log_);
  log_step(logger, 1);
  EXPECT_EQ(uploads(), "");
  EXPECT_EQ(logger.close(), std::nullopt);
  EXPECT_EQ(uploads(), (folder_ / "tb").string() + "\n");
  EXPECT_EQ(file_contents(folder_ / "hub" / logger.path().filename()), file_contents(logger.path()));
}

TEST_F(HubLoggerTest, ReplacesTheFolderInsideAWordToo) {
  HubLogger logger(
      options({script("note", "echo \"$1\" >> \"$2\"\n"), "--from={dir}:{dir}", (folder_ / "hub/uploads").string()}),
      log_);
  EXPECT_EQ(logger.close(), std::nullopt);
  const std::string tb = (folder_ / "tb").string();
  EXPECT_EQ(uploads(), "--from=" + tb + ":" + tb + "\n");
}

TEST_F(HubLoggerTest, UploadsEverySoManyCallsBesideTheTraining) {
  const std::string once = (folder_ / "tb").string() + "\n";
  HubLogger logger(options({good_, "{dir}", (folder_ / "hub").string()}, 3), log_);
  log_step(logger, 1);
  log_step(logger, 2);
  std::this_thread::sleep_for(milliseconds(50));  // time for an unexpected upload to show up
  EXPECT_EQ(uploads(), "");
  log_step(logger, 3);
  wait_for_upload();
  std::this_thread::sleep_for(milliseconds(50));  // to end
  log_step(logger, 4);
  log_step(logger, 5);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(uploads(), once);
  const auto deadline = steady_clock::now() + kPatience;
  for (int step = 6; uploads() == once && steady_clock::now() < deadline; ++step) log_step(logger, step);
  EXPECT_TRUE(uploads().starts_with(once + once));
}

TEST_F(HubLoggerTest, RunsOneUploadAtATime) {
  // Each upload writes "begin", waits until the test releases it, and writes "end".
  const std::string slow = script(
      "slow",
      "echo begin >> \"$1/uploads\"\nwhile [ ! -e \"$1/go\" ]; do sleep 0.01; done\necho end >> \"$1/uploads\"\n");
  HubLogger logger(options({slow, (folder_ / "hub").string()}), log_);
  for (int step = 0; step < 20; ++step) log_step(logger, step);
  wait_for_upload();
  for (int step = 20; step < 40; ++step) log_step(logger, step);
  std::this_thread::sleep_for(milliseconds(50));  // time for an unexpected second upload to show up
  EXPECT_EQ(uploads(), "begin\n");
  std::ofstream(folder_ / "hub/go") << "";
  EXPECT_EQ(logger.close(), std::nullopt);
  EXPECT_EQ(uploads(), "begin\nend\nbegin\nend\n");  // the running one, then the final one
}

TEST_F(HubLoggerTest, AFailedUploadIsAWarning) {
  HubLogger logger(options({script("bad", "echo 'no such repository' >&2\nexit 3\n"), "{dir}"}), log_);
  log_until_warned(logger);
  EXPECT_THAT(lines_.str(), HasSubstr("warning: upload to the hub failed why=\"exit status 3: no such repository\"\n"));
  const auto failure = logger.close();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(*failure, "the last upload to the hub failed: exit status 3: no such repository");
}

TEST_F(HubLoggerTest, ACommandThatIsNotThereIsAWarning) {
  HubLogger logger(options({"no-such-program-here"}), log_);
  EXPECT_NO_THROW(log_step(logger, 1));
  EXPECT_THAT(lines_.str(), HasSubstr("warning: upload to the hub failed"));
  EXPECT_THAT(lines_.str(), HasSubstr("no-such-program-here"));
  const auto failure = logger.close();
  ASSERT_TRUE(failure.has_value());
  EXPECT_THAT(*failure, HasSubstr("no-such-program-here"));
}

TEST_F(HubLoggerTest, CloseDoesNotWaitForEver) {
  HubOptions hanging = options({script("hang", "exec sleep 600\n")}, 1000);
  hanging.close_timeout = milliseconds(100);
  HubLogger logger(hanging, log_);
  const auto before = steady_clock::now();
  EXPECT_EQ(logger.close(), "the last upload to the hub did not end within 100 ms");
  EXPECT_LT(steady_clock::now() - before, kPatience);
}

TEST_F(HubLoggerTest, CloseDoesNotWaitForEverForTheUploadBefore) {
  HubOptions hanging = options({script("hang", "exec sleep 600\n")});
  hanging.close_timeout = milliseconds(100);
  HubLogger logger(hanging, log_);
  log_step(logger, 1);
  EXPECT_EQ(logger.close(), "the last upload to the hub did not end within 100 ms");
}

TEST_F(HubLoggerTest, TheDestructorNeitherUploadsNorHangs) {
  {
    HubLogger idle(options({good_, "{dir}", (folder_ / "hub").string()}, 1000), log_);
  }
  EXPECT_EQ(uploads(), "");
  const auto before = steady_clock::now();
  {
    HubLogger hanging(options({script("hang", "exec sleep 600\n")}), log_);
    log_step(hanging, 1);
  }
  EXPECT_LT(steady_clock::now() - before, kPatience);
}

TEST_F(HubLoggerTest, NothingIsUploadedAfterClose) {
  HubLogger logger(options({good_, "{dir}", (folder_ / "hub").string()}), log_);
  EXPECT_EQ(logger.close(), std::nullopt);
  log_step(logger, 1);
  EXPECT_EQ(logger.close(), std::nullopt);
  EXPECT_EQ(uploads(), (folder_ / "tb").string() + "\n");
}

TEST_F(HubLoggerTest, RefusesAnIntervalBelowOne) { EXPECT_THROW(HubLogger(options({good_}, 0), log_), ConfigError); }

}  // namespace
}  // namespace trireme::metrics
