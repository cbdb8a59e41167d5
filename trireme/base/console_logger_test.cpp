#include "trireme/base/console_logger.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

struct Lines {
  std::vector<std::string> seen;
  LogSink sink() {
    return [this](std::string_view line) { seen.emplace_back(line); };
  }
};

TEST(ConsoleLogger, WritesOneLineACall) {
  Lines lines;
  ConsoleLogger logger(lines.sink());
  logger.add_scalars_from_list({{"loss", 2.3}, {"tokens", std::int64_t{20480}}, {"tps", 58'400.0, "human_format"}}, 10);
  logger.add_scalars_from_list({}, 11);
  EXPECT_EQ(lines.seen, (std::vector<std::string>{"step=10 loss=2.3 tokens=20480 tps=58.4K\n", "step=11\n"}));
}

TEST(ConsoleLogger, HasAPrefixIfAsked) {
  Lines lines;
  ConsoleLogger logger(lines.sink(), "[r0]");
  logger.add_scalars_from_list({{"lm loss", 2.0}}, 1);
  EXPECT_EQ(lines.seen, std::vector<std::string>{"[r0] step=1 \"lm loss\"=2\n"});
}

TEST(ConsoleLogger, WritesNothingIfAFormatIsUnknown) {
  Lines lines;
  ConsoleLogger logger(lines.sink());
  EXPECT_THROW(logger.add_scalars_from_list({{"loss", 2.3}, {"lr", 1.0, "pretty"}}, 1), ConfigError);
  EXPECT_TRUE(lines.seen.empty());
}

}  // namespace
}  // namespace trireme
