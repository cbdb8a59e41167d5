#pragma once
// The values that all ranks exchange per step, apart from the model: token count, loss, memory, and whether to stop.
#include <optional>
#include <vector>

#include <c10/core/Event.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/metrics/step_shares.hpp"
#include "trireme/train/step/batches.hpp"

namespace trireme {

/// The number of unmasked targets over all ranks. The all-reduce overlaps the first forward.
class TokenCount {
 public:
  /// `failed`: this rank has no data for the step. Then the count, and with it every gradient, is NaN on all ranks, and
  /// nothing is updated.
  TokenCount(const std::vector<Microbatch>& microbatches, bool failed, const Mesh& mesh, at::Device device);
  /// f64, 0-dim, on the device.
  const at::Tensor& total();

 private:
  std::optional<Pending> pending_;
  at::Tensor total_;
};

struct StepAgreement {
  double loss_sum = 0;             // of all tokens of the step
  double auxiliary_sum = 0;        // of the auxiliary losses of the layers, likewise
  std::optional<ExitCode> stop{};  // some rank was asked to stop, with this exit code
  bool failed = false;             // some rank has no data for the step
  bool save = false;               // some rank was asked to save a checkpoint
  bool writing = false;            // some rank is still writing one
  std::int64_t peak_bytes = 0;     // the highest of all ranks
  double bubble = 0;               // the largest of all ranks
  double norm = 0, tokens = 0;     // as given to start_agreement()
  metrics::RankTime time{};        // summed over the ranks
  // By rank; see StepFacts.
  std::vector<double> own_work{}, last_actions{}, bubbles{}, peaks{};
};

/// What a rank contributes.
struct StepFacts {
  std::optional<ExitCode> stop{};
  bool failed = false, save = false, writing = false;
  std::int64_t peak_bytes = 0;
  double bubble = 0;              // StepOutcome::bubble
  metrics::RankTime time{};       // of this rank, up to here
  double last_action = 0;         // end of its last action, in seconds from the begin of the step
  at::Tensor auxiliary_sum = {};  // over this rank's tokens, f64; undefined: 0
};

/// An agreement on its way to the host.
class PendingAgreement {
 public:
  /// Waits until the device has computed it, but not for what was enqueued after it.
  StepAgreement read() &&;

 private:
  friend PendingAgreement start_agreement(const at::Tensor&, const at::Tensor&, const at::Tensor&, const StepFacts&,
                                          const Mesh&);
  at::Tensor host_;
  std::optional<c10::Event> copied_;  // none on a CPU
  int ranks_ = 1;
};

/// Collective. `loss_sum`: over this rank's tokens. `norm`, `tokens`: the same on all ranks, read along with the rest.
/// All f64, 0-dim, on the device, which is not waited for.
PendingAgreement start_agreement(const at::Tensor& loss_sum, const at::Tensor& norm, const at::Tensor& tokens,
                                 const StepFacts& own, const Mesh& mesh);

/// `loss_sum`: over this rank's tokens, f64. Collective; synchronizes with the device.
StepAgreement agree(const at::Tensor& loss_sum, const StepFacts& own, const Mesh& mesh);

}  // namespace trireme
