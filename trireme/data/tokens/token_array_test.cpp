#include "trireme/data/tokens/token_array.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;

template <class T>
TokenArray array_of(const TempFolder& folder, TokenType type, const std::vector<T>& values) {
  write_bytes(folder / "a", "header" + bytes_of_numbers(values));
  return {files::RandomReader(folder / "a"), 6, type, static_cast<std::int64_t>(values.size())};
}

Ids read_range(const TokenArray& array, std::int64_t first, std::size_t count) {
  Ids ids(count);
  array.read(first, ids);
  return ids;
}

TEST(TokenArray, ReadsEveryTypeToItsLastId) {
  const TempFolder folder;
  EXPECT_EQ(read_range(array_of<std::uint8_t>(folder, TokenType::u8, {0, 255}), 0, 2), (Ids{0, 255}));
  EXPECT_EQ(read_range(array_of<std::int8_t>(folder, TokenType::i8, {0, 127}), 0, 2), (Ids{0, 127}));
  EXPECT_EQ(read_range(array_of<std::int16_t>(folder, TokenType::i16, {0, 32'767}), 0, 2), (Ids{0, 32'767}));
  EXPECT_EQ(read_range(array_of<std::uint16_t>(folder, TokenType::u16, {0, 65'535}), 0, 2), (Ids{0, 65'535}));
  EXPECT_EQ(read_range(array_of<std::int32_t>(folder, TokenType::i32, {0, 2'147'483'647}), 0, 2),
            (Ids{0, 2'147'483'647}));
  EXPECT_EQ(read_range(array_of<std::uint32_t>(folder, TokenType::u32, {0, 4'294'967'295}), 0, 2),
            (Ids{0, 4'294'967'295}));
  EXPECT_EQ(read_range(array_of<std::int64_t>(folder, TokenType::i64, {0, 4'294'967'295}), 0, 2),
            (Ids{0, 4'294'967'295}));
}

TEST(TokenArray, NumbersThatAreNoIdsAreErrorsWithTheirPlace) {
  const TempFolder folder;
  const auto refusal = [](const TokenArray& array) {
    return message_of<DataError>([&] { read_range(array, 1, static_cast<std::size_t>(array.size()) - 1); });
  };
  EXPECT_THAT(refusal(array_of<std::int8_t>(folder, TokenType::i8, {-5, 1, -1})),
              HasSubstr("token -1 at position 2 of " + (folder / "a").string() + " (i8)"));
  EXPECT_THAT(refusal(array_of<std::int16_t>(folder, TokenType::i16, {1, -32'768})),
              HasSubstr("token -32,768 at position 1"));
  std::vector<std::int32_t> many(20'000, 7);
  many[12'345] = -2;
  EXPECT_THAT(refusal(array_of<std::int32_t>(folder, TokenType::i32, many)), HasSubstr("token -2 at position 12,345"));
  EXPECT_THAT(refusal(array_of<std::int64_t>(folder, TokenType::i64, {1, 4'294'967'296})),
              HasSubstr("token 4,294,967,296 at position 1"));
  EXPECT_THAT(refusal(array_of<std::int64_t>(folder, TokenType::i64, {1, std::numeric_limits<std::int64_t>::min()})),
              HasSubstr("token -9,223,372,036,854,775,808"));
}

TEST(TokenArray, RangesOutsideAreOurMistake) {
  const TempFolder folder;
  const TokenArray array = array_of<std::uint16_t>(folder, TokenType::u16, {1, 2, 3});
  EXPECT_EQ(read_range(array, 3, 0), Ids{});
  EXPECT_THROW(read_range(array, 2, 2), InternalError);
  EXPECT_THROW(read_range(array, -1, 1), InternalError);
  EXPECT_THROW((TokenArray{files::RandomReader(folder / "a"), 6, TokenType::u16, 4}), InternalError);
  EXPECT_THROW((TokenArray{files::RandomReader(folder / "a"), 13, TokenType::u16, 0}), InternalError);
}

TEST(TokenArray, LongRangesAreReadInPieces) {
  const TempFolder folder;
  std::vector<std::uint16_t> values(40'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint16_t>(i * 7);
  const TokenArray array = array_of(folder, TokenType::u16, values);
  EXPECT_EQ(read_range(array, 3, 39'990), Ids(values.begin() + 3, values.begin() + 39'993));
}

RC_GTEST_PROP(TokenArray, EncodedIsItsInverse, ()) {
  const TempFolder folder;
  const auto [type, most] =
      *rc::gen::elementOf(std::vector<std::pair<TokenType, std::uint64_t>>{{TokenType::u8, 1u << 8},
                                                                           {TokenType::i8, 1u << 7},
                                                                           {TokenType::i16, 1u << 15},
                                                                           {TokenType::u16, 1u << 16},
                                                                           {TokenType::i32, 1u << 31},
                                                                           {TokenType::u32, std::uint64_t{1} << 32},
                                                                           {TokenType::i64, std::uint64_t{1} << 32}});
  const Ids ids = *rc::gen::container<Ids>(rc::gen::map(rc::gen::arbitrary<std::uint64_t>(), [most = most](auto bits) {
    return static_cast<std::uint32_t>(bits % most);
  }));
  write_bytes(folder / "a", encoded(ids, type));
  const TokenArray array(files::RandomReader(folder / "a"), 0, type, static_cast<std::int64_t>(ids.size()));
  RC_ASSERT(read_range(array, 0, ids.size()) == ids);
}

TEST(TokenArray, EncodedRefusesWhatDoesNotFit) {
  EXPECT_THROW(encoded(Ids{65'536}, TokenType::u16), InternalError);
  EXPECT_THROW(encoded(Ids{2'147'483'648}, TokenType::i32), InternalError);
}

}  // namespace
}  // namespace trireme::data
