#include "tools/figures/figures.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::figures {
namespace {

constexpr double kSmallestFont = 11;

bool overlap(const LabelBox& a, const LabelBox& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

/// Two labels over each other, one outside of the picture, or too small to read.
std::vector<std::string> unreadable_labels(const Drawing& drawing) {
  std::vector<std::string> found;
  const std::vector<LabelBox>& labels = drawing.labels();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const LabelBox& a = labels[i];
    if (a.size < kSmallestFont) found.push_back(a.words + " is too small");
    if (a.left < 0 || a.top < 0 || a.right > kPageWidth || a.bottom > drawing.height())
      found.push_back(a.words + " is cut off");
    for (std::size_t j = 0; j < i; ++j)
      if (overlap(a, labels[j])) found.push_back(a.words + " over " + labels[j].words);
  }
  return found;
}

std::vector<std::string> words_of(const Drawing& drawing) {
  std::vector<std::string> words;
  for (const LabelBox& label : drawing.labels()) words.push_back(label.words);
  return words;
}

TEST(Figures, HaveLabelsThatCanBeRead) {
  for (const Figure& figure : all_figures()) {
    EXPECT_GE(figure.drawing.labels().size(), 10U) << figure.name;
    EXPECT_THAT(unreadable_labels(figure.drawing), testing::IsEmpty()) << figure.name;
  }
}

TEST(Figures, UnreadableLabelsAreFound) {
  Drawing out(40, "");
  out.label({10, 20}, "first");
  out.label({20, 22}, "second");
  out.label({750, 20}, "third");
  out.label({300, 20}, "fourth", {.size = 8});
  EXPECT_THAT(unreadable_labels(out),
              testing::ElementsAre("second over first", "third is cut off", "fourth is too small"));
}

TEST(Figures, ShowTheNumbersOfThePages) {
  using testing::Contains;
  using testing::HasSubstr;
  // docs/parallelism/zero.md: 18 bytes per parameter without ZeRO, 18 / 8 with stage 3 on 8 ranks; 8.03B parameters.
  EXPECT_THAT(words_of(draw_zero()), Contains("135"));
  EXPECT_THAT(words_of(draw_zero()), Contains("16.8"));
  EXPECT_THAT(words_of(draw_pipeline()), Contains(HasSubstr("bubble 9 (27.3% of the time)")));
  EXPECT_THAT(words_of(draw_context()), Contains("132 pairs").Times(4));
  EXPECT_THAT(words_of(draw_context()), Contains("228 pairs"));
  EXPECT_THAT(words_of(draw_tensor()), Contains("rows 1536:3072"));
  EXPECT_THAT(words_of(draw_tensor()), Contains("columns 1536:3072"));
  EXPECT_THAT(words_of(draw_expert()), Contains("experts 6, 7"));
}

}  // namespace
}  // namespace trireme::figures
