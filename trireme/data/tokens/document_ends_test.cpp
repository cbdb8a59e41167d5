#include "trireme/data/tokens/document_ends.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;
using Ends = std::vector<std::int64_t>;

IndexedEnds::Load loading(const Ends& ends) {
  return [ends](std::int64_t first, std::span<std::int64_t> out) {
    std::copy_n(ends.begin() + first, out.size(), out.begin());
  };
}

Ends wanted_within(const Ends& ends, std::int64_t first, std::int64_t count) {
  Ends found;
  std::ranges::copy_if(ends, std::back_inserter(found), [&](auto end) { return end > first && end <= first + count; });
  const auto twice = std::ranges::unique(found);
  found.erase(twice.begin(), twice.end());
  return found;
}

std::int64_t wanted_until(const Ends& ends, std::int64_t position) {
  return std::ranges::count_if(ends, [&](auto end) { return end <= position; });
}

RC_GTEST_PROP(IndexedEnds, AnswerLikeTheWholeList, ()) {
  // Around the length of a block, with runs of empty documents that cross blocks.
  const auto count = *rc::gen::inRange<std::int64_t>(1, 4 * IndexedEnds::kStride);
  const auto longest = *rc::gen::element<std::int64_t>(1, 2, 30);
  const auto seed = *rc::gen::arbitrary<std::uint32_t>();
  Ends ends;
  std::uint32_t random = seed;
  std::int64_t end = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    random = random * 1'664'525u + 1'013'904'223u;
    ends.push_back(end += (random >> 16) % (longest + 1));
  }
  if (end == 0) ends.back() = end = 1;
  const IndexedEnds index(count, end, loading(ends), "x");
  RC_ASSERT(index.count() == count);
  RC_ASSERT(index.within(0, end) == wanted_within(ends, 0, end));
  for (int i = 0; i < 20; ++i) {
    const auto first = *rc::gen::inRange<std::int64_t>(0, end + 1);
    const auto length = *rc::gen::inRange<std::int64_t>(0, end - first + 1);
    RC_ASSERT(index.within(first, length) == wanted_within(ends, first, length));
    RC_ASSERT(index.until(first) == wanted_until(ends, first));
  }
}

TEST(IndexedEnds, MustAscendToTheLastToken) {
  const auto refusal = [](const Ends& ends, std::int64_t num_tokens) {
    return message_of<DataError>(
        [&] { IndexedEnds(static_cast<std::int64_t>(ends.size()), num_tokens, loading(ends), "x.index"); });
  };
  EXPECT_EQ(refusal({0, 3, 3, 9}, 9), "no error");
  EXPECT_THAT(refusal({4, 3, 9}, 9), HasSubstr("x.index: document 1 ends at token 3, the one before at 4"));
  EXPECT_THAT(refusal({4, 10}, 9), HasSubstr("x.index: document 1 ends at token 10, the one before at 4; ends must "
                                             "ascend, to at most 9 tokens\n  fix: "));
  EXPECT_THAT(refusal({-1, 9}, 9), HasSubstr("ends at token 18446744073709551615"));
  EXPECT_THAT(refusal({4, 8}, 9), HasSubstr("x.index: the last of 2 documents ends at token 8, but there are 9"));
  Ends many(2'000, 5);
  many[1'500] = 4;
  EXPECT_THAT(refusal(many, 5), HasSubstr("document 1500 ends at token 4"));
}

std::shared_ptr<const TokenArray> stored(const TempFolder& folder, const Ids& ids) {
  write_bytes(folder / "a", encoded(ids, TokenType::u32));
  return std::make_shared<TokenArray>(files::RandomReader(folder / "a"), 0, TokenType::u32,
                                      static_cast<std::int64_t>(ids.size()));
}

TEST(MarkedEnds, WithoutAMarkAFileIsOneDocument) {
  const TempFolder folder;
  const MarkedEnds ends(stored(folder, {1, 2, 3}), std::nullopt);
  EXPECT_EQ(ends.count(), 1);
  EXPECT_EQ(ends.within(0, 3), Ends{3});
  EXPECT_EQ(ends.within(0, 2), Ends{});
  EXPECT_EQ(ends.within(3, 0), Ends{});
  EXPECT_EQ(ends.until(2), 0);
}

RC_GTEST_PROP(MarkedEnds, FollowEachMark, ()) {
  const TempFolder folder;
  const Ids ids = *rc::gen::nonEmpty(rc::gen::container<Ids>(rc::gen::inRange<std::uint32_t>(0, 3)));
  const auto size = static_cast<std::int64_t>(ids.size());
  Ends all;
  for (std::int64_t i = 0; i < size; ++i)
    if (ids[static_cast<std::size_t>(i)] == 0 || i + 1 == size) all.push_back(i + 1);
  const MarkedEnds ends(stored(folder, ids), 0);
  RC_ASSERT(ends.count() == static_cast<std::int64_t>(all.size()));
  const auto first = *rc::gen::inRange<std::int64_t>(0, size + 1);
  const auto length = *rc::gen::inRange<std::int64_t>(0, size - first + 1);
  RC_ASSERT(ends.within(first, length) == wanted_within(all, first, length));
  RC_ASSERT(ends.until(first == size ? 0 : first) == wanted_until(all, first == size ? 0 : first));
}

TEST(MarkedEnds, ReadLongFilesInPieces) {
  const TempFolder folder;
  Ids ids(200'000, 1);
  for (const std::size_t at : {0u, 65'535u, 65'536u, 131'072u, 199'999u}) ids[at] = 0;
  const MarkedEnds ends(stored(folder, ids), 0);
  EXPECT_EQ(ends.within(0, 200'000), (Ends{1, 65'536, 65'537, 131'073, 200'000}));
  EXPECT_EQ(ends.count(), 5);
}

}  // namespace
}  // namespace trireme::data
