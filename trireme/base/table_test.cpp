#include "trireme/base/table.hpp"

#include <gtest/gtest.h>

#include "trireme/base/terminal.hpp"

namespace trireme {
namespace {

TEST(Table, AlignsWordsLeftAndNumbersRight) {
  EXPECT_EQ(table({"name", "count", "time"}, {{"forward", "12", "1.24 s"}, {"b", "1,024", "–"}, {"c", "", "12 µs"}}),
            "name     count    time\n"
            "forward     12  1.24 s\n"
            "b        1,024       –\n"
            "c                12 µs\n");
}

TEST(Table, OneWordMakesAColumnOfWords) {
  EXPECT_EQ(table({}, {{"1", "x"}, {"two", "x"}}),
            "1    x\n"
            "two  x\n");
}

TEST(Table, SignsAndPointsAreNumbers) {
  EXPECT_EQ(table({"z"}, {{"-0.3"}, {"+10.25"}, {".5"}}),
            "     z\n"
            "  -0.3\n"
            "+10.25\n"
            "    .5\n");
}

TEST(Table, OnlyMissingCellsAreNoNumbers) { EXPECT_EQ(table({"mfu", "a"}, {{"–", "x"}}), "mfu  a\n–    x\n"); }

TEST(Table, ColoursTakeNoRoom) {
  const Style style(true);
  EXPECT_EQ(table({"loss", "x"}, {{style.bold("2.5"), "y"}, {"10.25", "y"}}),
            " loss  x\n"
            "  " +
                style.bold("2.5") +
                "  y\n"
                "10.25  y\n");
}

TEST(Table, RowsMayDifferInLength) {
  EXPECT_EQ(table({"a", "b"}, {{"x"}, {"y", "z", "1"}}),
            "a  b\n"
            "x\n"
            "y  z  1\n");
}

TEST(Table, OfNothingIsNothing) { EXPECT_EQ(table({}, {}), ""); }

}  // namespace
}  // namespace trireme
