#pragma once
// Training and validation data of a run, from its config. No torch, no ranks: a launcher checks it before anything
// starts.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/schema/config.hpp"
#include "trireme/data/sampling/batch.hpp"
#include "trireme/data/sampling/sampler.hpp"
#include "trireme/data/sampling/validation.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme {

class TrainData {
 public:
  /// Opens all files. DataError names a file that is missing, too short, made with a different tokenizer than the
  /// config's, or trained and validated on; ConfigError a vocabulary that is too small.
  /// `cp_rank`: of the tokens in the batches.
  explicit TrainData(const Config& config, int cp_rank = 0);

  const data::Sampler& sampler() const { return *sampler_; }
  /// For a run that resumes: the steps after this position follow. CheckpointError if the plan cannot be there.
  void continue_from(const data::DataPosition& position);
  /// What decides which samples a step sees, and what they contain, by name: "stage 1 source 2". Not the names of
  /// files, which may move. A checkpoint stores it.
  const std::map<std::string, std::string>& identity() const { return identity_; }
  /// Makes the batches of a step.
  const data::BatchMaker& maker(std::int64_t step) const;
  /// Makes those of validation.
  const data::BatchMaker& validation_maker() const { return *validation_maker_; }
  const std::optional<data::ValidationSet>& validation() const { return validation_; }
  const std::optional<data::Tokenizer>& tokenizer() const { return tokenizer_; }

  /// For display: what may not be meant.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Reads the first samples: DataError for a token outside of the vocabulary.
  void check_first_samples() const;
  /// For display: "shakespeare.ds · 1.1M tokens · 0.7 epochs planned".
  std::string describe() const;

 private:
  data::SharedTokens open_file(const std::string& path) const;
  data::SamplingPlan make_plan() const;
  std::map<std::string, std::string> make_identity() const;
  data::BatchOptions batch_options(const DataStage& stage, bool has_loss_mask) const;

  const Config config_;
  const int cp_rank_;
  std::vector<std::string> warnings_;  // first: sources that overlap are refused before they are opened
  std::optional<data::Tokenizer> tokenizer_;
  data::SamplingPlan plan_;
  std::map<std::string, std::string> identity_;
  std::optional<data::Sampler> sampler_;
  std::vector<data::BatchMaker> makers_;  // of each stage
  std::optional<data::ValidationSet> validation_;
  std::optional<data::BatchMaker> validation_maker_;
};

}  // namespace trireme
