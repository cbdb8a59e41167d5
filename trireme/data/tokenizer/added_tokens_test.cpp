#include "trireme/data/tokenizer/added_tokens.hpp"

#include <gtest/gtest.h>

namespace trireme::data {
namespace {

using Hits = std::vector<std::tuple<std::size_t, std::size_t, TokenId>>;

Hits hits_of(const std::vector<AddedToken>& tokens, std::string_view text) {
  const AddedTokenFinder finder(tokens);
  Hits out;
  for (const auto& hit : finder.find(text)) out.emplace_back(hit.begin, hit.end, hit.token->id);
  return out;
}

TEST(AddedTokenFinder, OfTheLeftmostTheLongest) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "<a>"},
                                       {.id = 2, .content = "<a><b>"},
                                       {.id = 3, .content = "b>"},
                                       {.id = 4, .content = "a"}};
  EXPECT_EQ(hits_of(tokens, "x<a><b><a>b>a"), (Hits{{1, 7, 2}, {7, 10, 1}, {10, 12, 3}, {12, 13, 4}}));
  EXPECT_EQ(hits_of(tokens, "<<a<"), (Hits{{2, 3, 4}}));
  EXPECT_TRUE(hits_of({}, "abc").empty());
  EXPECT_TRUE(hits_of({{.id = 1, .content = ""}}, "abc").empty());
}

TEST(AddedTokenFinder, TakesWhiteSpaceAlong) {
  EXPECT_EQ(hits_of({{.id = 1, .content = "<a>", .strip_left = true}}, "x \u3000<a> y"), (Hits{{1, 8, 1}}));
  EXPECT_EQ(hits_of({{.id = 1, .content = "<a>", .strip_right = true}}, "x <a> \n y<a>"),
            (Hits{{2, 8, 1}, {9, 12, 1}}));
  // White space consumed by one token is not available to the next.
  EXPECT_EQ(hits_of({{.id = 1, .content = "<a>", .strip_left = true, .strip_right = true}}, "<a>  <a>"),
            (Hits{{0, 5, 1}, {5, 8, 1}}));
  // White space consumed by a token may be a token itself.
  EXPECT_EQ(hits_of({{.id = 1, .content = "<a>", .strip_right = true}, {.id = 2, .content = "  "}}, "<a>  b"),
            (Hits{{0, 5, 1}, {3, 5, 2}}));
}

TEST(AddedTokenFinder, WholeWordsStandAlone) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "cat", .whole_word = true}};
  EXPECT_EQ(hits_of(tokens, "cat cats _cat (cat)\u00E9cat cat\u00BD"), (Hits{{0, 3, 1}, {15, 18, 1}, {25, 28, 1}}));
}

}  // namespace
}  // namespace trireme::data
