#pragma once
// What the ranks have to tell each other in a step, apart from the model: how many tokens count, the loss, and whether
// to stop.
#include <optional>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/train/batches.hpp"

namespace trireme {

/// The targets of all ranks that count. The sum travels while the first forward runs.
class TokenCount {
 public:
  TokenCount(const std::vector<Microbatch>& microbatches, const Mesh& mesh, at::Device device);
  /// f64, 0-dim, on the device.
  const at::Tensor& total();

 private:
  std::optional<Pending> pending_;
  at::Tensor total_;
};

struct StepAgreement {
  double loss_sum = 0;  // of all tokens of the step
  bool stop = false;    // some rank was asked to
};

/// `loss_sum`: of this rank's tokens. A call of all ranks; waits for the device.
StepAgreement agree(const at::Tensor& loss_sum, bool stop_asked, const Mesh& mesh);

}  // namespace trireme
