#pragma once
// The identity of the tokens in a forward, independent of the layout: for dropout masks and positions.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/layout/split.hpp"

namespace trireme {

class KvCache;
class PooledBalance;
class RingPlans;
class StepKeys;

/// The tokens of a microbatch are `batch` consecutive samples of `length` tokens: T = batch * length.
struct ForwardContext {
  std::uint64_t seed = 0;  // run.seed
  std::int64_t step = 0;
  bool training = true;
  std::int64_t batch = 0, length = 0;
  std::int64_t whole_length = 0;             // of a full sample, over all cp ranks
  std::vector<std::int64_t> samples_b = {};  // the index of each sample, as samples_T, on the host; empty: unknown
  at::Tensor samples_T;    // i64: the index in the step of each token's sample, the same for every layout
  at::Tensor positions_T;  // i64: position of each token in its sample

  // Documents of a sample that are apart. Undefined: a sample is one text.
  at::Tensor document_positions_T = {};        // i64: what the model takes for the position of each token
  at::Tensor documents_bS = {};                // i64: numbers of the documents, of whole samples over all cp ranks
  at::Tensor document_bounds = {};             // on a GPU, as kernels::FlashMask::bounds
  std::int64_t longest_document = 0;           // with document_bounds
  std::shared_ptr<RingPlans> ring_plans = {};  // on a GPU with context parallelism

  // Auxiliary losses of layers (experts):
  /// What their sum over tokens and layers is multiplied by in the loss: 1 / tokens of the step, and the loss scale.
  double auxiliary_factor = 0;
  /// Called with the auxiliary losses of each layer, summed over this rank's tokens.
  std::function<void(const at::Tensor& sum)> auxiliary_loss = {};
  /// For a balancing loss over all layers (Decoder sets it).
  std::shared_ptr<PooledBalance> pooled_balance = {};
  /// Of a layer that is recomputed in backward: the experts that its router chose in forward. A second choice could
  /// differ, by rounding. run_layer sets it.
  std::shared_ptr<at::Tensor> chosen_experts = {};

  /// In a CUDA graph: dropout reads what depends on the step from here.
  std::shared_ptr<StepKeys> step_keys = {};

  /// Of a generation: the tokens are the next ones of their sequences, at positions_T, and attend to those before.
  /// whole_length is that of the longest sequence, with them.
  std::shared_ptr<KvCache> cache = {};

  /// Called with the output of every module on the residual stream and the module's full name: to compare two runs.
  std::function<void(const std::string& path, const at::Tensor& x_t)> probe = {};

  std::int64_t tokens() const { return batch * length; }
  const at::Tensor& model_positions_T() const {
    return document_positions_T.defined() ? document_positions_T : positions_T;
  }
  /// A unique id for every token of the step.
  at::Tensor rows_T() const;
};

/// Full samples, numbered from `first_sample`.
ForwardContext whole_samples(std::int64_t batch, std::int64_t length, std::int64_t first_sample = 0,
                             at::Device device = at::kCPU);

/// The same samples on a cp rank that has only the tokens at these positions.
ForwardContext part_of_samples(const ForwardContext& whole, const std::vector<Range>& tokens);
/// Columns of x_bS at these positions.
at::Tensor select_tokens(const at::Tensor& x_bS, const std::vector<Range>& tokens);

}  // namespace trireme
