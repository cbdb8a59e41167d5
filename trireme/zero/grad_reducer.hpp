#pragma once
// Gradients in flat buckets, summed over the ranks that see other tokens (dp x cp) while backward still runs.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/layout/flat_layout.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

struct GradReducerOptions {
  double bucket_mb = 25;                   // of gradients, in the dtype they are summed in
  at::ScalarType accumulate = at::kFloat;  // over microbatches; f64 for parameters in f64
  at::ScalarType reduce = at::kFloat;      // on the wire
  bool scatter = false;                    // a rank needs the sum of its own shard alone (ZeRO 1)
  bool overlap = true;                     // send a bucket as soon as it is complete
};

/// For every step: begin_microbatch(last), backward, for each of its microbatches; then finish(). The hooks of the
/// parameters add each gradient to its place in the buffer and drop it; what a microbatch does not use keeps what it
/// has, and counts as zero when no microbatch does.
///
/// The loss is a sum over tokens divided by the count of all ranks' tokens, so gradients are added up and never divided.
///
/// Buckets follow the order of backward. Gradients that are parts of a sum over tp (nn/gradients.hpp) stand in buckets
/// of their own at the end: they are added up over tp first, when backward is over.
class GradReducer {
 public:
  GradReducer(std::vector<Param> params, Mesh& mesh, const GradReducerOptions& options);
  ~GradReducer();
  GradReducer(const GradReducer&) = delete;
  GradReducer& operator=(const GradReducer&) = delete;

  void begin_microbatch(bool last);
  /// The sums are there when it returns: of all buckets, or with `scatter` of this rank's shard of each.
  void finish();

  const FlatLayout& layout() const { return layout_; }
  /// Parameters in the order of the layout's items.
  const std::vector<Param>& params() const { return params_; }
  Group& group() const { return group_; }
  at::Tensor bucket(std::size_t b) const;
  at::Tensor shard(std::size_t b) const;
  /// The gradient of params()[i] as a view; whole after finish() without `scatter`.
  at::Tensor gradient(std::size_t i) const { return views_[i]; }

  /// Buckets sent before backward was over, in the last step: what overlap there was.
  int sent_during_backward() const { return sent_early_; }

 private:
  class Hook;
  struct InFlight;

  void arrived(std::size_t item, at::Tensor gradient);
  void send_complete_buckets();
  void send(std::size_t b);

  std::vector<Param> params_;
  Mesh& mesh_;
  Group& group_;
  const GradReducerOptions options_;
  FlatLayout layout_;
  std::size_t first_partial_bucket_ = 0;
  at::Tensor buffer_;
  std::vector<at::Tensor> views_;       // by item
  std::vector<std::size_t> bucket_of_;  // by item
  std::vector<bool> filled_, seen_;     // by item: in this step, in this microbatch
  std::vector<std::int64_t> missing_;   // by bucket: gradients that the last microbatch has not brought yet
  std::size_t next_bucket_ = 0;         // buckets are sent in order, on every rank
  bool last_ = false, in_backward_ = false;
  int sent_early_ = 0;
  std::deque<InFlight> in_flight_;
};

}  // namespace trireme
