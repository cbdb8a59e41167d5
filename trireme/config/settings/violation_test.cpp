#include "trireme/config/settings/violation.hpp"

#include <string>

#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

Violation some_violation(const std::string& headline, Place place, const std::string& detail = "",
                         const std::string& fix = "") {
  Violation v;
  v.headline = headline;
  v.place = std::move(place);
  v.detail = detail;
  v.fix = fix;
  return v;
}

TEST(Report, OneIsToldAtLength) {
  EXPECT_EQ(report({some_violation("a = 1", {"run.toml", 3, 1, ""})}), "a = 1\n  --> run.toml:3");
  EXPECT_EQ(report({some_violation("a = 1", {"run.toml", 3, 1, ""}, "why", "do that")}),
            "a = 1\n  --> run.toml:3  why\n  fix: do that");
  EXPECT_EQ(report({some_violation("a = 1", {}, "why")}), "a = 1\n  why");
  Violation launched = some_violation("a = 1", {"", 0, 0, "--a 1"}, "", "do that");
  launched.launch = "torchrun";
  EXPECT_EQ(report({launched}), "a = 1\n  --> --a 1\n  launch: torchrun\n  fix: do that");
}

TEST(Report, AWordIsMarkedUnderItsLine) {
  Violation v = some_violation("unknown key", {"rün.toml", 12, 9, ""}, "did you mean \"steps\"?");
  v.excerpt = "a = { stesp = 5 }";
  v.word_column = 7;
  v.word_length = 5;
  EXPECT_EQ(report({v}),
            "unknown key\n"
            "  --> rün.toml:12   a = { stesp = 5 }\n"
            "                          ^^^^^ did you mean \"steps\"?");
}

TEST(Report, SeveralBecomeAListWithColumns) {
  Violation unknown = some_violation("unknown key", {"run.toml", 120, 1, ""}, "did you mean \"tp\"?");
  unknown.in_list = "unknown key parallelism.tpp";
  unknown.excerpt = "tpp = 5";
  EXPECT_EQ(report({some_violation("a × b", {"run.toml", 3, 1, ""}, "why", "do that"), unknown,
                    some_violation("cannot open x\n  --> y\n", {"", 0, 0, "--model.hf x"})}),
            "3 config errors (nothing was started)\n"
            "  1. run.toml:3    a × b                         do that\n"
            "  2. run.toml:120  unknown key parallelism.tpp   did you mean \"tp\"?\n"
            "  3. --model.hf x  cannot open x; --> y; ");
}

TEST(ThrowIfAny, ThrowsTheReportWithCode64) {
  throw_if_any({});
  try {
    throw_if_any({some_violation("a = 1", {"run.toml", 3, 1, ""})});
    FAIL() << "no error";
  } catch (const ConfigError& e) {
    EXPECT_STREQ(e.what(), "a = 1\n  --> run.toml:3");
    EXPECT_EQ(static_cast<int>(e.exit_code()), 64);
  }
}

}  // namespace
}  // namespace trireme::config
