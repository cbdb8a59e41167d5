#pragma once
// What a run is trained and judged on, from its config. No torch, no ranks: a launcher checks it before anything starts.
#include <optional>
#include <string>

#include "trireme/config/schema/config.hpp"
#include "trireme/data/sampling/batch.hpp"
#include "trireme/data/sampling/sampler.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/data/sampling/validation.hpp"

namespace trireme {

class TrainData {
 public:
  /// Opens everything. DataError names a file that is missing, too short, or made with another tokenizer than the
  /// config names; ConfigError a vocabulary that is too small.
  explicit TrainData(const Config& config);

  const Sampler& sampler() const { return sampler_; }
  const BatchMaker& maker() const { return maker_; }
  const std::optional<ValidationSet>& validation() const { return validation_; }
  const std::optional<Tokenizer>& tokenizer() const { return tokenizer_; }

  /// Reads the first samples: DataError for a token outside of the vocabulary.
  void check_first_samples() const;
  /// For people: "shakespeare.ds · 1.1M tokens · 0.7 epochs planned".
  std::string describe() const;

 private:
  SamplingPlan make_plan() const;

  const Config config_;
  std::optional<Tokenizer> tokenizer_;
  SamplingPlan plan_;
  Sampler sampler_;
  BatchMaker maker_;
  std::optional<ValidationSet> validation_;
};

}  // namespace trireme
