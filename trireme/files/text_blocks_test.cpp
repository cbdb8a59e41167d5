#include "trireme/files/text_blocks.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::files {
namespace {

TEST(TextBlocks, TextsStayWhereTheyAre) {
  TextBlocks blocks;
  std::vector<std::string> wanted;
  std::vector<std::string_view> kept;
  for (std::size_t i = 0; i < 300; ++i) {
    wanted.emplace_back(1 + i * 37 % TextBlocks::kMaxBytes, static_cast<char>('a' + i % 26));
    kept.push_back(blocks.keep(wanted.back()));
  }
  wanted.emplace_back(TextBlocks::kMaxBytes, 'z');
  kept.push_back(blocks.keep(wanted.back()));
  const TextBlocks moved = std::move(blocks);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(kept[i], wanted[i]);
}

TEST(TextBlocks, RefusesLongTexts) {
  TextBlocks blocks;
  EXPECT_THROW(blocks.keep(std::string(TextBlocks::kMaxBytes + 1, 'a')), InternalError);
}

}  // namespace
}  // namespace trireme::files
