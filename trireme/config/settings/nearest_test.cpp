#include "trireme/config/settings/nearest.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

TEST(Nearest, FindsWhatAPersonMeant) {
  const std::vector<std::string> known = {"warmup_steps", "decay", "decay_steps", "min_lr", "interval", "tp", "pp"};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"warmup", "warmup_steps"},  // a prefix, however short
      {"warmup_stesp", "warmup_steps"},
      {"decya", "decay"},
      {"deca", "decay"},  // the shorter of two
      {"decay_step", "decay_steps"},
      {"minlr", "min_lr"},
      {"intervall", "interval"},
      {"tp", "tp"},
      {"zebra", ""},
      {"", ""},
      {"x", ""},
  };
  for (const auto& [word, expected] : cases) EXPECT_EQ(nearest(word, known), expected) << word;
  EXPECT_EQ(nearest("anything", {}), "");
}

TEST(Nearest, CostsLittleForALongWord) {
  const std::string word(1 << 20, 'x');
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(nearest(word, {"warmup_steps", "decay"}), ""); }), kDeadlineSeconds);
}

RC_GTEST_PROP(Nearest, ForgivesOneWrongLetterInAnyKey, ()) {
  Config config;
  std::vector<std::string> known;
  for (const Field& field : fields(config))
    if (leaf_of(field.key).size() > 7) known.push_back(leaf_of(field.key));  // "stages" and "states" are too similar
  Dice dice;
  const std::string key = dice.one_of(known);
  std::string word = key;
  word[static_cast<std::size_t>(dice.pick(0, static_cast<int>(key.size()) - 1))] = '~';
  RC_ASSERT(nearest(word, known) == key);
}

}  // namespace
}  // namespace trireme::config
