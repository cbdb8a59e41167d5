#pragma once
// Gradient reduction in flat buckets, overlapped with backward.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "trireme/kernels/matmul/gradient_place.hpp"
#include "trireme/parallel/tensor/gradients.hpp"
#include "trireme/parallel/zero/partition.hpp"

namespace trireme {

/// Per step: begin_microbatch(last), backward, end_microbatch() for each microbatch; then finish(). Some layers
/// write their gradients directly into the buckets (kernels/matmul/gradient_place.hpp); for all others a
/// post-accumulate hook on the parameter adds the gradient from autograd to the bucket and releases it. Parameters that
/// a microbatch does not use have zero gradient. In stage 3, where gathers and reductions share a group, all ranks must
/// use the same parameters in a microbatch; an unused one delays the buckets after it to the end of the microbatch.
///
/// With deferred weight gradients (zero-bubble schedules): begin_deferral(m), backward, end_deferral(), and later, in
/// microbatch order, begin_microbatch(last), run_deferred(m), end_microbatch(). A bucket is complete when the deferred
/// work of its parameters has run.
///   stages 0-1  full gradients are kept; buckets are reduced in the last microbatch
///   stages 2-3  buckets are reduced in every microbatch, and only the local shard is kept
///
/// The loss is a sum over tokens divided by the token count of all ranks, so gradients are summed, never averaged.
/// Partial gradients (parallel/tensor/gradients.hpp) are all-reduced over tp before their bucket is reduced.
class GradReducer {
 public:
  explicit GradReducer(const Partition& partition);
  ~GradReducer();
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  // For a backward that is recorded once and then replayed (a CUDA graph):
  /// From now on buckets are sent by end_microbatch(), not during backward.
  void hold_back() { holds_back_ = true; }
  /// Backward was replayed: it has written the gradients that the last one wrote which called the hooks.
  void replayed();

  /// Called during backward, in every microbatch, when the last gradient of a bucket has arrived.
  void on_bucket_complete(std::function<void(std::size_t b)> f) { bucket_complete_ = std::move(f); }
  /// Called with every gradient of a microbatch before it is accumulated, for inspection.
  void on_gradient(std::function<void(const Param&, const at::Tensor&)> f) { look_at_ = std::move(f); }
  /// Called before deferred work that reads the parameters of a bucket.
  void on_bucket_read(std::function<void(std::size_t b)> f) { bucket_read_ = std::move(f); }

  void begin_microbatch(bool last);
  void end_microbatch();
  void begin_deferral(int microbatch);
  void end_deferral() { deferring_ = nullptr; }
  void run_deferred(int microbatch);
  /// On return all reductions are complete.
  void finish();

  const Partition& partition() const { return partition_; }
  /// This rank's shard of the reduced gradients of bucket b, in the accumulation dtype.
  at::Tensor shard(std::size_t b) const;
  /// Elements that are kept for the sums of gradients.
  std::int64_t numel() const { return sums_.numel(); }
  /// Stages 0-1: where backward writes the gradients of bucket b.
  at::Tensor unreduced(std::size_t b) { return buffer(b); }

  /// Buckets whose reduction started before the end of backward, in the last microbatch: a measure of overlap.
  int sent_during_backward() const { return sent_early_; }

 private:
  class Hook;
  struct InFlight;

  /// A deferred weight gradient: a deferred write of a layer, or a gradient from autograd.
  struct Deferred {
    std::size_t item;
    kernels::GradientPlace::Write write;  // empty: `gradient` is set instead
    at::Tensor gradient;
    bool reads_parameter = false;
  };

  kernels::GradientPlace::Memory to_write(std::size_t item);
  at::Tensor whole_gradient(std::size_t item, at::Tensor gradient);
  void arrived(std::size_t item, at::Tensor from_autograd);
  void require_open(std::size_t item) const;
  void add(std::size_t item, const at::Tensor& gradient);
  at::Tensor buffer(std::size_t b);
  at::Tensor view(std::size_t item);
  bool sends_now() const { return last_ || every_microbatch_; }
  void send(std::size_t b);
  void land(std::size_t in_flight_at_most);
  void sum_over_replicas(std::size_t b);
  void land_over_replicas();

  const Partition& partition_;
  const bool every_microbatch_;
  const at::ScalarType dtype_;              // of the buckets that backward fills
  at::Tensor sums_;                         // all full buckets, or this rank's shards of them
  std::vector<std::int64_t> sums_begin_;    // offset of each bucket in sums_
  std::map<std::size_t, at::Tensor> open_;  // stages 2-3: buckets being filled in this microbatch
  std::vector<bool> filled_, seen_;         // by item: has a value in the bucket; arrived in this microbatch
  std::vector<bool> written_;               // by item: a layer has written its gradient directly in this microbatch
  std::vector<at::Tensor> aside_;           // by item: the temporary tensor for that, if it cannot be the bucket
  std::vector<bool> summed_;                // by bucket, stages 2-3: sums_ holds gradients of this step
  std::vector<std::int64_t> missing_;       // by bucket: gradients still to arrive in this microbatch
  std::vector<PartialSums> partial_;        // by bucket
  std::vector<at::Tensor> held_;            // without contiguous_gradients: by item, until the end of backward
  std::size_t next_bucket_ = 0;             // buckets are reduced in this order on every rank
  bool last_ = false, in_step_ = false, in_microbatch_ = false;
  std::int64_t microbatch_ = 0;  // counts all
  int sent_early_ = 0;
  std::deque<InFlight> in_flight_, over_replicas_;
  std::map<int, std::vector<Deferred>> deferred_;  // by microbatch
  bool holds_back_ = false;
  std::vector<bool> recorded_;  // with hold_back(): parameters with a gradient in the last backward that called hooks
  std::vector<Deferred>* deferring_ = nullptr;  // of the microbatch whose weight gradients are being deferred
  std::function<void(std::size_t)> bucket_complete_, bucket_read_;
  std::function<void(const Param&, const at::Tensor&)> look_at_;
};

}  // namespace trireme
