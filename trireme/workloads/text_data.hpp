#pragma once
// Generated text to be classified by its topic.
#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::workloads {

struct TextDataOptions {
  std::int64_t samples = 0;
  std::int64_t length = 32;        // tokens of a text, with the start token
  std::int64_t vocabulary = 1000;  // words, with the start token
  int classes = 2;
};

struct LabelledText {
  at::Tensor x;  // [samples, length] int64
  at::Tensor y;  // [samples] int64
};

/// Every text begins with the start token, 0. Each class has a topic of `topic_words` words (from 1 + class *
/// topic_words on); the other words, at least half of the vocabulary, belong to none. A text has between a quarter and
/// half of its tokens from topics, and more from its own than from any other; where they are is random. No word alone
/// and no position tells the class: it takes all tokens.
///
/// Classes have the same number of samples, to within one. A pure function of options, seed and purpose. ConfigError
/// for a length or vocabulary that has no room for this.
LabelledText text_data(const TextDataOptions& options, std::uint64_t seed, const std::string& purpose = "train");

/// Words in the topic of one class.
std::int64_t topic_words(const TextDataOptions& options);

}  // namespace trireme::workloads
