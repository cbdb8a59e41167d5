#include "trireme/data/added_tokens.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Found = std::vector<std::tuple<std::size_t, std::size_t, TokenId>>;

Found found(const std::vector<AddedToken>& tokens, std::string_view text) {
  const AddedTokenFinder finder(tokens);
  Found out;
  for (const auto& hit : finder.find(text)) out.emplace_back(hit.begin, hit.end, hit.token->id);
  return out;
}

TEST(AddedTokenFinder, OfTheLeftmostTheLongest) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "<a>"},
                                       {.id = 2, .content = "<a><b>"},
                                       {.id = 3, .content = "b>"},
                                       {.id = 4, .content = "a"}};
  EXPECT_EQ(found(tokens, "x<a><b><a>b>a"), (Found{{1, 7, 2}, {7, 10, 1}, {10, 12, 3}, {12, 13, 4}}));
  EXPECT_EQ(found(tokens, "<<a<"), (Found{{2, 3, 4}}));
  EXPECT_TRUE(found({}, "abc").empty());
  EXPECT_TRUE(found({{.id = 1, .content = ""}}, "abc").empty());
}

TEST(AddedTokenFinder, TakesWhiteSpaceAlong) {
  EXPECT_EQ(found({{.id = 1, .content = "<a>", .strip_left = true}}, "x \u3000<a> y"), (Found{{1, 8, 1}}));
  EXPECT_EQ(found({{.id = 1, .content = "<a>", .strip_right = true}}, "x <a> \n y<a>"), (Found{{2, 8, 1}, {9, 12, 1}}));
  // What one has taken is not there for the next.
  EXPECT_EQ(found({{.id = 1, .content = "<a>", .strip_left = true, .strip_right = true}}, "<a>  <a>"),
            (Found{{0, 5, 1}, {5, 8, 1}}));
}

TEST(AddedTokenFinder, WholeWordsStandAlone) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "cat", .whole_word = true}};
  EXPECT_EQ(found(tokens, "cat cats _cat (cat)\u00E9cat cat\u00BD"), (Found{{0, 3, 1}, {15, 18, 1}, {25, 28, 1}}));
}

}  // namespace
}  // namespace trireme
