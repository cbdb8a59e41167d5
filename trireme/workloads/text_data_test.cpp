#include "trireme/workloads/text_data.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::workloads {
namespace {

using testing::HasSubstr;

/// [samples, classes]: the words of each topic.
at::Tensor topic_counts(const at::Tensor& x, const TextDataOptions& options) {
  const at::Tensor topic = (x - 1).div(topic_words(options), "floor");
  std::vector<at::Tensor> counts;
  for (int c = 0; c < options.classes; ++c) counts.push_back((topic == c).logical_and(x > 0).sum(1));
  return at::stack(counts, 1);
}

TEST(TextData, TheMajorityOfTopicWordsIsTheClass) {
  for (const TextDataOptions& options :
       {TextDataOptions{.samples = 200},
        TextDataOptions{.samples = 90, .length = 40, .vocabulary = 60, .classes = 3}}) {
    const LabelledText data = text_data(options, 1);
    ASSERT_EQ(data.x.sizes(), (std::vector<std::int64_t>{options.samples, options.length}));
    EXPECT_EQ(data.x.select(1, 0).abs().max().item<int>(), 0);
    EXPECT_EQ(data.x.slice(1, 1).min().item<int>(), 1);
    EXPECT_LT(data.x.max().item<int>(), options.vocabulary);
    const at::Tensor counts = topic_counts(data.x, options);
    const at::Tensor own = counts.gather(1, data.y.unsqueeze(1));
    EXPECT_EQ((counts >= own).sum().item<std::int64_t>(), options.samples);  // itself only
    EXPECT_GE(counts.sum(1).min().item<std::int64_t>(), options.length / 4);
    EXPECT_LE(counts.sum(1).max().item<std::int64_t>(), options.length / 2);
    EXPECT_GT((counts.sum(1) - own.squeeze(1)).sum().item<int>(), options.samples);  // words of other topics mislead
  }
}

TEST(TextData, IsBalancedAndAFunctionOfSeedAndPurpose) {
  const TextDataOptions options{.samples = 101};
  const LabelledText a = text_data(options, 5), b = text_data(options, 5);
  EXPECT_TRUE(at::equal(a.x, b.x));
  EXPECT_TRUE(at::equal(a.y, b.y));
  EXPECT_FALSE(at::equal(a.x, text_data(options, 6).x));
  EXPECT_FALSE(at::equal(a.x, text_data(options, 5, "validation").x));
  EXPECT_EQ(a.y.sum().item<int>(), 50);
  EXPECT_FALSE(at::equal(a.y, at::arange(101) % 2));
}

TEST(TextData, RefusesWhatHasNoRoom) {
  const auto refusal = [](const TextDataOptions& options) {
    return message_of<ConfigError>([&] { text_data(options, 1); });
  };
  EXPECT_THAT(refusal({.samples = 0}), HasSubstr("samples = 0"));
  EXPECT_THAT(refusal({.samples = 1, .classes = 1}), HasSubstr("classes = 1"));
  EXPECT_THAT(refusal({.samples = 1, .vocabulary = 4}), HasSubstr("vocabulary of 4"));
  EXPECT_THAT(refusal({.samples = 1, .length = 8}), HasSubstr("length = 8"));
  EXPECT_EQ(refusal({.samples = 1, .length = 9, .vocabulary = 5}), "no error");
}

}  // namespace
}  // namespace trireme::workloads
