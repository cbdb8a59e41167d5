#pragma once
// The values that all ranks exchange per step, apart from the model: token count, loss, memory, and whether to stop.
#include <optional>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/train/batches.hpp"

namespace trireme {

/// The number of unmasked targets over all ranks. The all-reduce overlaps the first forward.
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
  double loss_sum = 0;          // of all tokens of the step
  bool stop = false;            // some rank was asked to stop
  std::int64_t peak_bytes = 0;  // the highest of all ranks
};

/// `loss_sum`: over this rank's tokens, f64. `peak_bytes`: of this rank's memory. Collective; synchronizes with the
/// device.
StepAgreement agree(const at::Tensor& loss_sum, bool stop_asked, std::int64_t peak_bytes, const Mesh& mesh);

}  // namespace trireme
