#include "trireme/layout/slices.hpp"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"

namespace trireme {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min(), kMax = std::numeric_limits<std::int64_t>::max();

Slice slice(std::optional<std::int64_t> start, std::optional<std::int64_t> stop,
            std::optional<std::int64_t> step = {}) {
  return {start, stop, step};
}

TEST(Slices, NanotronsTextInAndOut) {
  const std::string written =
      "0,10,None|None,None,None#0,10,None|0,5,None;10,12,None|None,None,None#20,22,None|-5,None,1";
  const std::vector<SlicesPair> pairs = parse_slices_pairs(written);
  ASSERT_EQ(pairs.size(), 2U);
  EXPECT_EQ(pairs[0].local_slices, (Slices{slice(0, 10), slice({}, {})}));
  EXPECT_EQ(pairs[0].global_slices, (Slices{slice(0, 10), slice(0, 5)}));
  EXPECT_EQ(pairs[1].global_slices, (Slices{slice(20, 22), slice(-5, {}, 1)}));
  EXPECT_EQ(str(pairs), written);
}

TEST(Slices, NothingAndTensorsWithoutDimsAreToldApart) {
  EXPECT_EQ(parse_slices_pairs(""), std::vector<SlicesPair>{});
  EXPECT_EQ(str(std::vector<SlicesPair>{}), "");
  EXPECT_EQ(parse_slices_pairs("#"), std::vector<SlicesPair>(1));
  EXPECT_EQ(str(std::vector<SlicesPair>(1)), "#");
}

TEST(Slices, TheSeedsExample) {
  // t[8, 64] over the world ranks (0, 3), sharded along dim 1.
  const ShardedInfo rank0{{0, 3}, parse_slices_pairs("0,8,None|0,32,None#0,8,None|0,32,None"), {8, 64}};
  const ShardedInfo rank3{{0, 3}, parse_slices_pairs("None,None,None|0,32,None#0,8,None|-32,None,None"), {8, 64}};
  EXPECT_EQ(validated(rank0, {8, 32}), rank0);
  EXPECT_EQ(str(validated(rank3, {8, 32}).local_global_slices_pairs), "0,8,None|0,32,None#0,8,None|32,64,None");
  EXPECT_EQ(tuple_text(rank0.unsharded_shape), "(8, 64)");
}

TEST(Slices, ResolveIsPythons) {
  EXPECT_EQ(resolve(slice({}, {}), 10), (Range{0, 10}));
  EXPECT_EQ(resolve(slice(2, {}), 10), (Range{2, 10}));
  EXPECT_EQ(resolve(slice(-3, -1), 10), (Range{7, 9}));
  EXPECT_EQ(resolve(slice(7, 3, 1), 10), (Range{7, 7}));
  EXPECT_EQ(resolve(slice({}, {}), 0), (Range{0, 0}));
}

TEST(Slices, ResolveRefusesWhatLeavesTheDimAndSteps) {
  EXPECT_THAT(message_of<CheckpointError>([] { resolve(slice(0, 11), 10); }),
              HasSubstr("slice 0,11,None: 11 is outside a dim of size 10"));
  EXPECT_THAT(message_of<CheckpointError>([] { resolve(slice(-11, 3), 10); }), HasSubstr("-11 is outside"));
  EXPECT_THAT(message_of<CheckpointError>([] { resolve(slice(kMin, kMax), kMax); }), HasSubstr("is outside"));
  EXPECT_THAT(message_of<CheckpointError>([] { resolve(slice(0, 10, 2), 10); }),
              HasSubstr("slice 0,10,2: the step must be None or 1"));
  EXPECT_THAT(message_of<CheckpointError>([] { resolve({slice(0, 1)}, {2, 3}); }),
              HasSubstr("1 dims for a tensor of shape (2, 3)"));
  EXPECT_THROW(box_of({slice({}, 3)}), InternalError);
  EXPECT_THROW(box_of({slice(-1, 3)}), InternalError);
}

TEST(Slices, ValidationNamesThePair) {
  const auto refused = [](const char* pairs, const Shape& local, const char* message) {
    const ShardedInfo info{{0, 1}, parse_slices_pairs(pairs), {8, 64}};
    EXPECT_THAT(message_of<CheckpointError>([&] { validated(info, local); }), HasSubstr(message));
  };
  refused("0,8,None|0,32,None#0,8,None|0,31,None", {8, 32}, "dim 1 has 32 local and 31 global elements");
  refused("0,8,None|0,32,None#0,8,None|33,65,None", {8, 32}, "65 is outside a dim of size 64");
  refused("0,8,None|0,33,None#0,8,None|0,33,None", {8, 32}, "33 is outside a dim of size 32");
  refused("0,8,None#0,8,None", {8}, "1 dims for a tensor of shape (8, 64)");
  refused("0,8,None#0,8,None|0,32,None", {8}, "1 local and 2 global dims");
  refused("0,4,None|0,2,None#0,4,None|0,2,None;4,8,None|0,2,None#3,7,None|1,3,None", {8, 2},
          "overlaps 0,4,None|0,2,None#");
  refused("0,4,None|0,2,None#0,4,None|0,2,None;3,7,None|0,2,None#4,8,None|0,2,None", {8, 2}, "overlaps");
}

TEST(Slices, MalformedTextIsRefusedWithItsPosition) {
  const auto refused = [](const std::string& source, const std::string& message) {
    EXPECT_THAT(message_of<CheckpointError>([&] { parse_slices_pairs(source); }), HasSubstr(message));
  };
  refused("0,10,None|x,5,None#", "\"0,10,None|x,5,None#\": at position 10: expected a whole number");
  refused("0,10", "at position 4: expected \",\"");
  refused("0,10,None", "at position 9: expected \"#\"");
  refused("0,10,None#0,10,None#", "at position 19: expected the end");
  refused("0,10,None#0,10,None;", "at position 20: expected \"#\"");
  refused("0,10,None|#0,10,None", "at position 10: expected a whole number");
  refused("0,10,none#", "expected a whole number");
  refused(" 0,10,None#", "at position 0");
  refused("0,9223372036854775808,None#", "at position 2: the number does not fit in 64 bits");
  refused("0,1e3,None#", "at position 3: expected \",\"");
  refused("+1,-,None#", "at position 0");
  refused("1,-,None#", "at position 2");
  refused(std::string("0,\0", 3), "at position 2");
}

TEST(Slices, HugeTextIsRefusedWithAShortMessage) {
  const std::size_t million = 1'000'000;
  const std::string bars = "0,1,None" + std::string(million, '|');
  for (const std::string& source : {std::string(million, ';'), std::string(million, '#'), std::string(million, '|'),
                                    std::string(million, '9'), std::string(million, ','), bars}) {
    try {
      parse_slices_pairs(source);
      FAIL() << source.substr(0, 10);
    } catch (const CheckpointError& error) {
      EXPECT_LT(std::string(error.what()).size(), 250U);
    }
  }
  std::string pairs = "#", dims = "0,1,None";
  for (std::size_t i = 0; i < kMaxPairs; ++i) pairs += ";#";
  for (std::size_t i = 0; i < kMaxDims; ++i) dims += "|0,1,None";
  EXPECT_THAT(message_of<CheckpointError>([&] { parse_slices_pairs(pairs); }), HasSubstr("at most 4096 pairs"));
  EXPECT_THAT(message_of<CheckpointError>([&] { parse_slices_pairs(dims + "#"); }), HasSubstr("at most 64 dims"));
}

TEST(Tuple, PythonsTextInAndOut) {
  for (const auto& [shape, written] : std::vector<std::pair<Shape, std::string>>{
           {{}, "()"}, {{32}, "(32,)"}, {{32, 16}, "(32, 16)"}, {{0, 1, kMax}, "(0, 1, 9223372036854775807)"}}) {
    EXPECT_EQ(tuple_text(shape), written);
    EXPECT_EQ(parse_tuple(written), shape);
  }
  EXPECT_EQ(parse_tuple("(np.int64(32), 16)"), (Shape{32, 16}));
  EXPECT_EQ(parse_tuple("(16, np.int64(32))"), (Shape{16, 32}));
}

TEST(Tuple, MalformedTextIsRefused) {
  for (const char* source :
       {"", "(", ")", "32, 16", "(32)", "(32, 16", "(32 16)", "(32,16)", "(32,, 16)", "(-1,)", "(,)", "(32,) ",
        "(1.5,)", "(9223372036854775808,)", "(np.int64(32, 16)", "(np.float64(3),)"})
    EXPECT_THROW(parse_tuple(source), CheckpointError) << source;
}

TEST(Numel, IsBounded) {
  EXPECT_EQ(numel({}), 1);
  EXPECT_EQ(numel({3, 0, 4}), 0);
  EXPECT_EQ(numel({std::int64_t{1} << 30, std::int64_t{1} << 30}), std::int64_t{1} << 60);
  EXPECT_THROW(numel({2, -1}), ConfigError);
  EXPECT_THROW(numel({kMax, kMax}), ConfigError);
  EXPECT_THROW(numel({0, kMax}), ConfigError);
  EXPECT_THROW(numel({std::int64_t{1} << 30, (std::int64_t{1} << 30) + 1}), ConfigError);
}

TEST(TiedInfo, TextInAndOut) {
  const TiedInfo head{"lm_head.weight", "model", {0, 4}, ReduceOp::sum}, norm{"norm#1", "", {3}, std::nullopt};
  EXPECT_EQ(str(head), "sum#(0, 4)#model#lm_head.weight");
  EXPECT_EQ(str(norm), "None#(3,)##norm#1");
  EXPECT_EQ(parse_tied_info(str(head)), head);
  EXPECT_EQ(parse_tied_info(str(norm)), norm);
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min})
    EXPECT_EQ(parse_tied_info(std::string(name(op)) + "#()##x").reduce_op, op);
}

TEST(TiedInfo, MalformedTextIsRefused) {
  EXPECT_THAT(message_of<CheckpointError>([] { parse_tied_info("mean#(0, 4)##x"); }),
              HasSubstr("expected None, sum, avg, max or min"));
  EXPECT_THAT(message_of<CheckpointError>([] { parse_tied_info("sum#(0, 2147483648)##x"); }),
              HasSubstr("rank 2147483648 is too large"));
  for (const char* source : {"", "sum", "sum#", "sum#(0, 4)", "sum#(0, 4)#model", "summ#()##", "None#0,4##"})
    EXPECT_THROW(parse_tied_info(source), CheckpointError) << source;
  EXPECT_THROW(str(TiedInfo{"x", "a#b", {}, {}}), ConfigError);
}

std::optional<std::int64_t> any_number() {
  if (pick(0, 3) == 0) return std::nullopt;
  return *rc::gen::arbitrary<std::int64_t>();
}

Slices any_slices(std::size_t dims) {
  Slices slices;
  for (std::size_t dim = 0; dim < dims; ++dim) slices.push_back(slice(any_number(), any_number(), any_number()));
  return slices;
}

RC_GTEST_PROP(SlicesProperty, TextRoundTrip, ()) {
  std::vector<SlicesPair> pairs;
  for (int i = pick(0, 3); i > 0; --i) pairs.push_back({any_slices(pick(0, 3)), any_slices(pick(0, 3))});
  RC_ASSERT(parse_slices_pairs(str(pairs)) == pairs);
  Shape shape(pick(0, 4));
  for (std::int64_t& size : shape) size = any_number().value_or(0) & kMax;
  RC_ASSERT(parse_tuple(tuple_text(shape)) == shape);
}

/// Random text made of the grammar's tokens: parsing either throws CheckpointError or the result round-trips.
RC_GTEST_PROP(SlicesProperty, AnyTextIsReadOrRefused, ()) {
  const std::vector<std::string> words{"0",
                                       "-1",
                                       "9223372036854775807",
                                       "99999999999999999999",
                                       "None",
                                       ",",
                                       "|",
                                       "#",
                                       ";",
                                       "(",
                                       ")",
                                       ", ",
                                       "np.int64(",
                                       "sum",
                                       "x",
                                       "0,1,None",
                                       "0,1,None#0,1,None"};
  std::string source;
  for (int i = pick(0, 11); i > 0; --i) source += words[pick(0, static_cast<int>(words.size()) - 1)];
  const auto read_or_refused = [&](auto parse, auto write) {
    try {
      RC_ASSERT(parse(write(parse(source))) == parse(source));
    } catch (const CheckpointError&) {
    }
  };
  read_or_refused(parse_slices_pairs, [](const std::vector<SlicesPair>& pairs) { return str(pairs); });
  read_or_refused(parse_tuple, tuple_text);
  read_or_refused(parse_tied_info, [](const TiedInfo& info) { return str(info); });
}

}  // namespace
}  // namespace trireme
