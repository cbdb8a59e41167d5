// Prints the samples that a run on one token file uses, for training_agrees.py to train on them too.
//   usage: samples_tool TOKENS SEED GLOBAL_BATCH_SIZE SEQ_LEN STEPS
// One JSON line per sample, steps from 1 and rows in order: {"step":1,"row":0,"tokens":[...],"mask":[...]}, both of
// SEQ_LEN + 1 numbers. The mask (1: the token counts as a label) is omitted if all count.
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/sampling/sampler.hpp"
#include "trireme/data/tokens/open_tokens.hpp"

namespace {

using namespace trireme;

template <class Number>
void print(const char* key, const std::vector<Number>& numbers) {
  std::cout << ",\"" << key << "\":[";
  const char* gap = "";
  for (const Number number : numbers) std::cout << std::exchange(gap, ",") << std::uint32_t{number};
  std::cout << "]";
}

void print_samples(const std::vector<std::string>& words) {
  require<ConfigError>(words.size() == 5, "usage: samples_tool TOKENS SEED GLOBAL_BATCH_SIZE SEQ_LEN STEPS");
  const data::SharedTokens source = data::open_tokens(words[0]);
  const std::int64_t rows = std::stoll(words[2]), seq_len = std::stoll(words[3]), steps = std::stoll(words[4]);
  data::SamplingPlan
      plan;  // like the trainer, from run.seed, training.global_batch_size and .seq_len, and one [[data]]
  plan.seed = std::stoull(words[1]);
  plan.global_batch_size = rows;
  plan.stages = {{.start_step = 1, .seq_len = seq_len, .sources = {{source}}}};
  const data::Sampler sampler(std::move(plan));
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(seq_len + 1));
  std::vector<std::uint8_t> mask(tokens.size());
  for (std::int64_t step = 1; step <= steps; ++step) {
    for (const data::Sample& sample : sampler.samples(step, {0, rows})) {
      sample.tokens->read(sample.first_token, tokens);
      std::cout << "{\"step\":" << step << ",\"row\":" << sample.row;
      print("tokens", tokens);
      if (sample.tokens->has_loss_mask()) {
        sample.tokens->read_loss_mask(sample.first_token, mask);
        print("mask", mask);
      }
      std::cout << "}\n";
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    print_samples({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "samples_tool: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
