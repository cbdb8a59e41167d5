#include "trireme/data/sampling/windows.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/layout_helpers.hpp"
#include "trireme/testing/memory_tokens.hpp"

namespace trireme::data {
namespace {

TEST(Windows, NeighboursShareOneToken) {
  const Windows windows({{0, 11}}, 5);  // 0...5, 5...10
  EXPECT_EQ(windows.size(), 2);
  EXPECT_EQ(windows.first_token(0), 0);
  EXPECT_EQ(windows.first_token(1), 5);
  EXPECT_EQ(Windows({{0, 10}}, 5).size(), 1);
  EXPECT_EQ(Windows({{0, 5}}, 5).size(), 0);
  EXPECT_EQ(Windows({{0, 0}}, 5).size(), 0);
  EXPECT_THROW(windows.first_token(2), InternalError);
  EXPECT_THROW(windows.first_token(-1), InternalError);
}

TEST(Windows, PartsTooShortForAWindowHaveNone) {
  const Windows windows({{0, 7}, {10, 12}, {20, 27}}, 3);
  EXPECT_EQ(windows.size(), 4);
  EXPECT_EQ(windows.first_token(1), 3);
  EXPECT_EQ(windows.first_token(2), 20);
  EXPECT_EQ(windows.first_token(3), 23);
}

std::vector<std::uint32_t> counted(std::int64_t count) {
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0U);
  return tokens;
}

TEST(Windows, OfWholeDocuments) {
  const MemoryTokens tokens("talks", counted(24), {3, 5, 9, 20, 21, 24});
  const Windows windows = Windows::of_documents(tokens, {{0, 24}}, 5);  // up to six tokens
  std::vector<Window> all;
  for (std::int64_t i = 0; i < windows.size(); ++i) all.push_back(windows.at(i));
  // 3 + 2, 4, then 11 tokens in two samples that share one, of which the last has room for nothing, 1 + 3.
  EXPECT_EQ(all, (std::vector<Window>{{0, 5}, {5, 4}, {9, 6}, {14, 6}, {20, 4}}));
  EXPECT_EQ(windows.num_cut(), 1);
}

RC_GTEST_PROP(WindowsProperty, WholeDocumentsAreInOneWindowEach, ()) {
  const std::int64_t num_tokens = pick(1, 300), seq_len = pick(1, 30);
  std::vector<std::int64_t> ends;
  for (std::int64_t end = 0; end < num_tokens;) ends.push_back(end = std::min(num_tokens, end + pick(1, 40)));
  const MemoryTokens tokens("talks", counted(num_tokens), ends);
  const Windows windows = Windows::of_documents(tokens, {{0, num_tokens}}, seq_len);
  std::vector<int> holds(static_cast<std::size_t>(num_tokens));
  for (std::int64_t i = 0; i < windows.size(); ++i) {
    const Window w = windows.at(i);
    RC_ASSERT(2 <= w.num_tokens && w.num_tokens <= seq_len + 1);
    for (std::int64_t t = w.first_token; t < w.first_token + w.num_tokens; ++t) ++holds[static_cast<std::size_t>(t)];
  }
  std::int64_t begin = 0, cut = 0;
  for (const std::int64_t end : ends) {
    if (end - begin > seq_len + 1) {
      ++cut;
    } else {  // whole, in one window; only a last token by itself is in none
      bool whole = end - begin == 1;
      for (std::int64_t i = 0; i < windows.size(); ++i) {
        const Window w = windows.at(i);
        whole |= w.first_token <= begin && end <= w.first_token + w.num_tokens;
      }
      RC_ASSERT(whole);
    }
    begin = end;
  }
  RC_ASSERT(windows.num_cut() == cut);
  RC_ASSERT(std::ranges::max(holds) <= 2);  // neighbours of a cut document share a token
}

RC_GTEST_PROP(WindowsProperty, EveryTokenBehindTheFirstOfAPartIsALabelAtMostOnce, ()) {
  const std::int64_t num_tokens = pick(1, 400), seq_len = pick(1, 30);
  const double fraction = toss() ? 0 : pick(0, 99) / 100.0;
  const TokenParts parts = hold_out(num_tokens, fraction, static_cast<std::uint64_t>(pick(0, 99)), 0);
  std::vector<int> labels(static_cast<std::size_t>(num_tokens)), inputs(labels);
  const auto mark = [&](const std::vector<Range>& ranges, int who) {
    const Windows windows(ranges, seq_len);
    for (std::int64_t i = 0; i < windows.size(); ++i) {
      const auto first = static_cast<std::size_t>(windows.first_token(i));
      for (std::size_t t = first; t < first + static_cast<std::size_t>(seq_len); ++t) {
        RC_ASSERT(labels.at(t + 1) == 0);
        labels[t + 1] = who;
        RC_ASSERT(inputs.at(t) == 0);
        inputs[t] = who;
      }
    }
  };
  mark(parts.train, 1);
  mark(parts.validation, 2);
  for (std::size_t t = 0; t < labels.size(); ++t) RC_ASSERT(labels[t] == 0 || inputs[t] == 0 || labels[t] == inputs[t]);
  std::int64_t unused = 0;
  for (const int label : labels) unused += label == 0;
  RC_ASSERT(unused <= static_cast<std::int64_t>(parts.train.size() + parts.validation.size()) * seq_len);
}

RC_GTEST_PROP(WindowsProperty, WhatIsHeldOutIsThatManyTokensSpreadOverTheSource, ()) {
  const std::int64_t num_tokens = *rc::gen::inRange<std::int64_t>(1, 1'000'000'000);
  const double fraction = pick(0, 500) / 1000.0;
  const TokenParts parts = hold_out(num_tokens, fraction, 7, 3);
  std::int64_t held_out = 0, at = 0;
  std::vector<Range> all = parts.train;
  all.insert(all.end(), parts.validation.begin(), parts.validation.end());
  std::ranges::sort(all, {}, &Range::begin);
  for (const Range& range : all) {
    RC_ASSERT(range.begin == at && range.size() > 0);
    at = range.end;
  }
  RC_ASSERT(at == num_tokens);
  for (const Range& range : parts.validation) held_out += range.size();
  RC_ASSERT(held_out == static_cast<std::int64_t>(fraction * static_cast<double>(num_tokens)));
  RC_ASSERT(parts.validation.size() <= 64U);
  if (parts.validation.size() > 1)
    for (const Range& range : parts.validation) RC_ASSERT(range.size() >= kHeldOutRange);
}

TEST(HoldOut, DependsOnSeedAndSource) {
  const auto place = [](std::uint64_t seed, std::size_t source) {
    return hold_out(1'000'000, 0.05, seed, source).validation.at(0).begin;
  };
  EXPECT_EQ(place(1, 0), place(1, 0));
  EXPECT_NE(place(1, 0), place(2, 0));
  EXPECT_NE(place(1, 0), place(1, 1));
  EXPECT_EQ(hold_out(100'000'000, 0.5, 1, 0).validation.size(), 64U);
}

TEST(HoldOut, WrongFractionsAreNamed) {
  EXPECT_THROW(hold_out(10, 1, 0, 0), ConfigError);
  EXPECT_THROW(hold_out(10, -0.1, 0, 0), ConfigError);
  EXPECT_THROW(hold_out(10, 0.0 / 0.0, 0, 0), ConfigError);
  EXPECT_THROW(hold_out(-1, 0.1, 0, 0), DataError);
}

}  // namespace
}  // namespace trireme::data
