#include "trireme/data/tokenizer/pattern.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

std::string pattern_refusal(const std::string& regex) {
  return message_of<DataError>([&] { Pattern{regex}; });
}

TEST(Pattern, CutsTextIntoMatchesAndTheRest) {
  EXPECT_EQ(Pattern(R"(\d+)").split("ab12c3"),
            (std::vector<Span>{{0, 2, false}, {2, 4, true}, {4, 5, false}, {5, 6, true}}));
  EXPECT_EQ(Pattern("x*").split("axb"),
            (std::vector<Span>{{0, 0, true}, {0, 1, false}, {1, 2, true}, {2, 3, false}, {3, 3, true}}));
  EXPECT_TRUE(Pattern("a").split("").empty());
  EXPECT_EQ(Pattern("é").split("né"), (std::vector<Span>{{0, 1, false}, {1, 3, true}}));
}

TEST(Pattern, WhiteSpaceIsUnicodes) {
  EXPECT_EQ(Pattern(R"(\s+)").split("\u2028\u180E"), (std::vector<Span>{{0, 3, true}, {3, 6, false}}));
  EXPECT_EQ(Pattern(R"([^\s]+)").split("\u0085a"), (std::vector<Span>{{0, 2, false}, {2, 3, true}}));
  EXPECT_EQ(Pattern(R"(\S+)").split(" a"), (std::vector<Span>{{0, 1, false}, {1, 2, true}}));
  EXPECT_EQ(Pattern(R"(a$)").split("a\nb"), (std::vector<Span>{{0, 1, true}, {1, 3, false}}));  // multi-line
}

TEST(Pattern, BrokenBytesAreCharactersOfNoClass) {
  EXPECT_EQ(Pattern(R"([^\s\p{L}\p{N}]+)").split("a\xFF\xC3 b"),
            (std::vector<Span>{{0, 1, false}, {1, 3, true}, {3, 5, false}}));
}

TEST(Pattern, WhatTheTwoEnginesReadDifferentlyIsRefused) {
  for (const char* regex :
       {R"(\w+)", R"(a\b)", R"(\h)", R"([a[b]])", R"([a&&b])", R"(\p{N}{1,3}+)", R"([\S])", "[]a]", "(*UTF)a", R"(\R)",
        R"(\p{N}{,3})", "a{2}?", "(?m:a)", "(?s)a", R"(\v)", R"([\v])", "(?<n>a)", R"((a)\1)", R"(\pL)"})
    EXPECT_THAT(pattern_refusal(regex), HasSubstr("would read that differently from the reference")) << regex;
  EXPECT_EQ(pattern_refusal(R"(\p{N}+|\x{41}+|[^\r\n]?+|a{2,3}?|\p{Han}+|\P{Lu}|(?>a)(?<!b)(?<=c)\-)"), "no error");
}

TEST(Pattern, WhatIsNoPatternIsRefused) {
  EXPECT_THAT(pattern_refusal("(a"),
              HasSubstr("is no regular expression: missing closing parenthesis (near its byte 2)"));
  EXPECT_THAT(pattern_refusal(R"(\p{Elvish})"), HasSubstr("is no regular expression"));
  EXPECT_THAT(pattern_refusal(R"(\p{Alpha})"), HasSubstr("is no regular expression"));  // a class there, not a script
  EXPECT_THAT(pattern_refusal("\xFF"), HasSubstr("is not UTF-8"));
  EXPECT_THAT(pattern_refusal(std::string(70'000, 'a')), HasSubstr("a pattern of 70000 bytes; at most 65536"));
  EXPECT_THAT(pattern_refusal("a\\"), HasSubstr("a backslash at its end"));
}

TEST(Pattern, LongRunsAreNoReasonToStop) {
  const std::string spaces(1'000'000, ' '), digits(20'000, '7');
  EXPECT_EQ(Pattern(R"(\s*[\r\n]+|\s+(?!\S)|\s+)").split(spaces + "x").size(), 3u);
  EXPECT_EQ(Pattern(R"((?=(\d{3})+(?!\d)))").split(digits).size(), 13'333u);
}

TEST(Pattern, APatternThatTriesTooManyWaysIsStopped) {
  const Pattern hostile("(a|aa)+[bc]");
  const std::string text(64, 'a');
  EXPECT_THAT(message_of<DataError>([&] { hostile.split(text); }), HasSubstr("fails at byte 0 of a text of 64 bytes"));
}

}  // namespace
}  // namespace trireme::data
