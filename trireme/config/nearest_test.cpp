#include "trireme/config/nearest.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/config/test_words.hpp"

namespace trireme {
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
  for (const Field& field : fields(config)) known.push_back(field.key);
  std::erase_if(known, [](const std::string& key) { return leaf_of(key).size() < 6; });  // pp and dp are too much alike
  const std::string key = known[static_cast<std::size_t>(pick(0, static_cast<int>(known.size()) - 1))];
  std::string word = key;
  word[static_cast<std::size_t>(pick(0, static_cast<int>(key.size()) - 1))] = '~';
  RC_ASSERT(nearest(word, known) == key);
}

}  // namespace
}  // namespace trireme
