#include "trireme/config/import/megatron_script.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/settings/toml_file.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> flags_of(const std::string& script) {
  std::vector<std::string> out;
  for (const Setting& s : parse_megatron_script("run.sh", script))
    out.push_back(text(s.place.line, ": ", s.path, "|", str(s.value)));
  return out;
}

TEST(MegatronScript, FlagsTakeTheWordsAfterThem) {
  EXPECT_THAT(flags_of("python pretrain_gpt.py --num-layers 24 --bf16 --data-path 0.3 a 0.7 b --lr=3e-4 -- x"),
              ElementsAre("1: --num-layers|24", "1: --bf16|", "1: --data-path|0.3 a 0.7 b", "1: --lr|3e-4"));
  EXPECT_THAT(flags_of(""), ElementsAre());
  EXPECT_THAT(flags_of("nothing here"), ElementsAre());
}

TEST(MegatronScript, ACommandEndsWithItsLine) {
  EXPECT_THAT(flags_of("train --bf16\nset +x\ntrain --fp16 ; echo done\n--seed 5 && echo 1\n"),
              ElementsAre("1: --bf16|", "3: --fp16|", "4: --seed|5"));
  EXPECT_THAT(flags_of("train --bf16 2>&1 | tee log.txt"), ElementsAre("1: --bf16|"));
  EXPECT_THAT(flags_of("train --seed 5 > log.txt"), ElementsAre("1: --seed|5"));
  EXPECT_THAT(flags_of("train --seed \\\n  5 \\\n  --bf16"), ElementsAre("1: --seed|5", "3: --bf16|"));
}

TEST(MegatronScript, QuotesAndComments) {
  EXPECT_THAT(flags_of("train --wandb-exp-name 'a b' --save \"c d\"e # --lr 5\n# --lr 6\n--seed 1#2"),
              ElementsAre("1: --wandb-exp-name|a b", "1: --save|c de", "3: --seed|1#2"));
  EXPECT_THAT(flags_of(R"(train --save a\ b)"), ElementsAre("1: --save|a b"));
  EXPECT_THAT(flags_of("train --save \"a\nb\" --seed 5"), ElementsAre("1: --save|a\nb", "2: --seed|5"));
}

TEST(MegatronScript, Variables) {
  EXPECT_THAT(flags_of("TP=2\nexport PP=$TP\ntrain --tp $TP --pp ${PP} --save /x/$TP-$PP/y"),
              ElementsAre("3: --tp|2", "3: --pp|2", "3: --save|/x/2-2/y"));
  EXPECT_THAT(flags_of("A=1\nA=2\ntrain --seed $A"), ElementsAre("3: --seed|2"));
  EXPECT_THAT(flags_of("N=${NODES:-4}\nM=8\ntrain --a $N --b ${M:-1} --c ${K:-7} --d ${K:-}"),
              ElementsAre("3: --a|4", "3: --b|8", "3: --c|7", "3: --d|"));
  EXPECT_THAT(flags_of("P=a--b\ntrain --save $P"), ElementsAre("2: --save|a--b"));
}

TEST(MegatronScript, WhatOnlyAShellKnowsStaysAndIsTold) {
  const Settings settings = parse_megatron_script(
      "run.sh", "A=$1\nB=$A/x\ntrain --a $A --b $B --c $(nproc) --d $((2 * 4)) --e ${A%.*} --f `pwd` --g $ --h 5");
  std::vector<std::string> values;
  for (const Setting& s : settings) {
    values.push_back(str(s.value));
    EXPECT_EQ(needs_shell(s), s.path != "--h") << s.path;
  }
  EXPECT_THAT(values, ElementsAre("$A", "$B", "$(nproc)", "$((2 * 4))", "${A%.*}", "`pwd`", "$", "5"));
}

TEST(MegatronScript, FlagsInArraysAndInTexts) {
  EXPECT_THAT(flags_of("ARGS=(\n  --num-layers 24\n  --bf16  # on\n)\ntrain \"${ARGS[@]}\" --seed 5"),
              ElementsAre("2: --num-layers|24", "3: --bf16|", "5: --seed|5"));
  EXPECT_THAT(flags_of("ARGS=\"\n  --num-layers 24 \\\n  --bf16\n\"\ntrain --seed 5 $ARGS ${ARGS} --lr 1"),
              ElementsAre("2: --num-layers|24", "3: --bf16|", "5: --seed|5", "5: --lr|1"));
  EXPECT_THAT(flags_of("A=\"--seed 5\"\nA=\"$A --bf16\"\nARGS+=( --lr 1 )\ntrain $A"),
              ElementsAre("1: --seed|5", "2: --bf16|", "3: --lr|1"));
}

TEST(MegatronScript, HostileScriptsAreRefusedOrReadInTime) {
  const auto repeat = [](const std::string& word) { return repeated(word, 30'000); };
  for (const std::string& script :
       {repeat("--a "), repeat("\""), repeat("$"), repeat("--a $"), "--a " + repeat("x "), repeat("A="),
        repeat("A=") + "--x", repeat("A=\"") + " --x", repeat("("), repeat("\\"), "--a " + repeat("${"),
        "A=" + std::string(1000, 'x') + "\n--a " + repeat("$A"), "A=x\n" + repeat("A=$A$A\n") + "--a $A",
        std::string(kMaxConfigBytes + 1, 'x')})
    EXPECT_LT(seconds_of([&] { message_of<ConfigError>([&] { parse_megatron_script("x.sh", script); }); }),
              kDeadlineSeconds)
        << script.substr(0, 20);
  EXPECT_THAT(message_of<ConfigError>([] { parse_megatron_script("x.sh", std::string("--a \0", 5)); }),
              HasSubstr("not a text in UTF-8"));
  EXPECT_THAT(message_of<ConfigError>([&] { parse_megatron_script("x.sh", repeated("--a ", 50'000)); }),
              HasSubstr("settings"));
}

}  // namespace
}  // namespace trireme::config
