#include "trireme/layout/box_copy.hpp"

#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using Numbers = std::vector<std::int32_t>;

bool contains(const Box& box, const std::vector<std::int64_t>& index) {
  for (std::size_t d = 0; d < box.size(); ++d)
    if (index[d] < box[d].begin || index[d] >= box[d].end) return false;
  return true;
}

/// Each element of the box in row-major order.
std::vector<std::vector<std::int64_t>> indices_of(const Box& box) {
  std::vector<std::vector<std::int64_t>> out{{}};
  for (const Range& side : box) {
    std::vector<std::vector<std::int64_t>> longer;
    for (const auto& index : out)
      for (std::int64_t i = side.begin; i < side.end; ++i) {
        longer.push_back(index);
        longer.back().push_back(i);
      }
    out = std::move(longer);
  }
  return out;
}

std::int32_t value_at(const std::vector<std::int64_t>& index) {
  std::int64_t out = 1;
  for (const std::int64_t i : index) out = out * 8 + i;
  return static_cast<std::int32_t>(out);
}

Box random_box(std::mt19937& random, std::size_t dims) {
  Box box(dims);
  for (Range& side : box) {
    side.begin = static_cast<std::int64_t>(random() % 5);
    side.end = side.begin + 1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(5 - side.begin));
  }
  return box;
}

TEST(BoxCopy, AgreesWithElementByElement) {
  std::mt19937 random(7);
  int contiguous = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const std::size_t dims = random() % 4;
    const Box from_box = random_box(random, dims), to_box = random_box(random, dims);
    const std::optional<Box> common = intersection(from_box, to_box);
    Numbers from, to, wanted;
    for (const auto& index : indices_of(from_box)) from.push_back(value_at(index));
    bool any = false;
    for (const auto& index : indices_of(to_box)) {
      any = any || contains(from_box, index);
      wanted.push_back(contains(from_box, index) ? value_at(index) : -1);
    }
    ASSERT_EQ(common.has_value(), any) << str(from_box) << str(to_box);
    to.assign(wanted.size(), -1);
    if (common)
      copy_box(std::as_bytes(std::span(from)), from_box, std::as_writable_bytes(std::span(to)), to_box, *common, 4);
    ASSERT_EQ(to, wanted) << str(from_box) << str(to_box);

    const auto offset = contiguous_offset(from_box, to_box);
    const auto first = std::ranges::search(wanted, from);
    const bool whole = common && *common == from_box && !first.empty();
    ASSERT_EQ(offset.has_value(), whole) << str(from_box) << str(to_box);
    if (offset) {
      ASSERT_EQ(*offset, first.begin() - wanted.begin());
    }
    contiguous += offset ? 1 : 0;
  }
  EXPECT_GT(contiguous, 100);
}

TEST(BoxCopy, SizesMustMatch) {
  std::vector<std::byte> bytes(8);
  const Box box{{0, 2}};
  EXPECT_NE(message_of<InternalError>([&] { copy_box(bytes, box, std::span(bytes).first(4), box, box, 4); }),
            "no error");
  EXPECT_NE(message_of<InternalError>([&] { copy_box(bytes, box, bytes, box, {{1, 3}}, 4); }), "no error");
}

TEST(Overlapping, FindsTwoBoxesWithACommonElement) {
  const Box left{{0, 4}, {0, 2}}, right{{0, 4}, {2, 4}}, below{{4, 8}, {0, 4}}, across{{3, 5}, {1, 2}},
      none{{2, 2}, {0, 4}};
  EXPECT_EQ(overlapping(std::vector<Box>{}), std::nullopt);
  EXPECT_EQ(overlapping(std::vector{below, right, left, none}), std::nullopt);
  EXPECT_EQ(overlapping(std::vector{below, right, left, across}), (std::pair<std::size_t, std::size_t>{2, 3}));
  EXPECT_EQ(overlapping(std::vector<Box>{Box{}}), std::nullopt);
  EXPECT_TRUE(overlapping(std::vector<Box>{Box{}, Box{}})) << "a tensor without dims has one element";
}

}  // namespace
}  // namespace trireme
