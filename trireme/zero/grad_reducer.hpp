#pragma once
// Gradients in flat buckets, summed over the ranks that see other tokens while backward still runs.
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "trireme/kernels/gradient_place.hpp"
#include "trireme/zero/partition.hpp"

namespace trireme {

/// For every step: begin_microbatch(last), backward, end_microbatch(), for each of its microbatches; then finish().
/// Layers write their gradients to the buckets at once where they can (kernels/gradient_place.hpp); else the hooks of
/// the parameters add what autograd brings, and drop it. What a microbatch does not use counts as zero. In stage 3,
/// where gathers and sums share a group, all ranks must use the same parameters in a microbatch; an unused one keeps
/// the buckets behind it waiting until the microbatch ends.
///
/// Where weight gradients are deferred (zero-bubble schedules): begin_deferral(m), backward, end_deferral(), and later,
/// in the order of the microbatches, begin_microbatch(last), run_deferred(m), end_microbatch(). A bucket is complete
/// when the deferred work of its parameters has run.
///   stages 0-1  whole gradients stay; buckets are summed in the last microbatch
///   stages 2-3  buckets are summed in every microbatch, and only the own part stays
///
/// The loss is a sum over tokens divided by the count of all ranks' tokens, so gradients are added up and never
/// divided. Gradients that are parts of a sum over tp (nn/gradients.hpp) are added up over tp before their bucket is
/// sent.
class GradReducer {
 public:
  explicit GradReducer(const Partition& partition);
  ~GradReducer();
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  /// Called in backward when the last gradient of a bucket has come, in every microbatch.
  void on_bucket_complete(std::function<void(std::size_t b)> f) { bucket_complete_ = std::move(f); }
  /// Called with every gradient of a microbatch before it is added: for looking at.
  void on_gradient(std::function<void(const Param&, const at::Tensor&)> f) { look_at_ = std::move(f); }

  void begin_microbatch(bool last);
  void end_microbatch();
  void begin_deferral(int microbatch);
  void end_deferral() { deferring_ = nullptr; }
  void run_deferred(int microbatch);
  /// The sums are there when it returns.
  void finish();

  const Partition& partition() const { return partition_; }
  /// This rank's part of the summed gradients of bucket b, in the accumulate dtype.
  at::Tensor shard(std::size_t b) const;

  /// Buckets sent before backward was over, in the last microbatch: what overlap there was.
  int sent_during_backward() const { return sent_early_; }

 private:
  class Hook;
  struct InFlight;

  /// What a microbatch has left for later: a write that a layer deferred, or a gradient from autograd.
  struct Deferred {
    std::size_t item;
    kernels::GradientPlace::Write write;  // empty: `gradient` has arrived
    at::Tensor gradient;
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

  const Partition& partition_;
  const bool every_microbatch_;
  const at::ScalarType dtype_;              // of the buckets that backward fills
  at::Tensor sums_;                         // the whole of all buckets, or this rank's parts of them
  std::vector<std::int64_t> sums_begin_;    // of each bucket there
  std::map<std::size_t, at::Tensor> open_;  // stages 2-3: buckets that this microbatch fills
  std::vector<bool> filled_, seen_;         // by item: since the bucket was empty, in this microbatch
  std::vector<bool> written_;               // by item: a layer has written to its place in this microbatch
  std::vector<at::Tensor> aside_;           // by item: that place, where it is not in the bucket
  std::vector<bool> summed_;                // by bucket, stages 2-3: whether the step has a sum already
  std::vector<std::int64_t> missing_;       // by bucket: gradients that this microbatch has not brought yet
  std::vector<bool> partial_;               // by bucket: some gradients are parts of a sum over tp
  std::vector<at::Tensor> held_;            // without contiguous_gradients: by item, until backward is over
  std::size_t next_bucket_ = 0;             // buckets are sent in order, on every rank
  bool last_ = false, in_step_ = false, in_microbatch_ = false;
  int sent_early_ = 0;
  std::deque<InFlight> in_flight_;
  std::map<int, std::vector<Deferred>> deferred_;  // by microbatch
  std::vector<Deferred>* deferring_ = nullptr;     // of the microbatch whose weight gradients are deferred now
  std::function<void(std::size_t)> bucket_complete_;
  std::function<void(const Param&, const at::Tensor&)> look_at_;
};

}  // namespace trireme
