#pragma once
// Token after token of some sequences without a wait between them: what follows a token is enqueued before the host has
// seen it, and on a GPU each token is the replay of one CUDA graph.
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "trireme/inference/choose_token.hpp"
#include "trireme/kernels/cuda_graph.hpp"
#include "trireme/nn/kv_cache.hpp"

namespace trireme {

class TokenLoop {
 public:
  /// Whether the next token of this model is work that does not depend on the tokens so far: one rank, no experts whose
  /// rows the host counts, no frequencies that follow the length.
  static bool takes(InferenceModel& model);

  struct Begin {
    std::vector<data::TokenId> tokens;  // the last ones, which the cache does not hold yet
    std::vector<std::int64_t> lengths;  // of the sequences, with them
    std::int64_t draws = 0;             // done so far
  };
  /// `records`: as a CUDA graph.
  TokenLoop(InferenceModel& model, TokenChooser& chooser, std::shared_ptr<KvCache> cache, const Begin& begin,
            bool records);

  /// Enqueues the choice of the next token of every sequence.
  void start();
  /// The tokens of the oldest start(): waits for them, and for nothing else.
  std::vector<data::TokenId> take();

 private:
  void grow();
  void work();

  InferenceModel& model_;
  TokenChooser& chooser_;
  const std::shared_ptr<KvCache> cache_;
  const bool records_;
  std::int64_t longest_, draws_, capacity_ = 0;
  at::Tensor ids_b_, positions_b_, noise_bv_;  // where the work of a token reads them
  std::unique_ptr<kernels::CudaGraph> graph_;

  struct OnItsWay {
    at::Tensor host_b, host_noise;  // pinned memory, read or written by the device until `copied`
    std::optional<c10::Event> copied;
  };
  std::deque<OnItsWay> on_their_way_;
};

}  // namespace trireme
