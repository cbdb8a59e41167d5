#pragma once
// Attention of samples whose tokens are split over a ring of ranks (context parallelism).
#include <memory>

#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"
#include "trireme/layout/context_split.hpp"
#include "trireme/parallel/context/ring_plan.hpp"

namespace trireme {

/// The samples of a forward, as attention between the ranks of a ring sees them.
struct RingSamples {
  CpSplit order = CpSplit::zigzag;
  std::int64_t whole_length = 0;  // of a sample, over all ranks
  std::int64_t window = 0;        // a token attends to this many tokens, including itself; 0: all before it
  double softcap = 0;             // of the scores (kernels::BlockScores); 0: none
  at::Tensor documents_bS = {};   // numbers of the documents of whole samples; undefined: a sample is one text
  bool gathers = false;           // all K and V at once, instead of block by block
  /// How to compute documents and windows without masks; undefined: with masks. Of the whole samples, this rank's.
  std::shared_ptr<const RingPlan> plan = {};
};

// b samples, h heads, g KV heads, s = this rank's tokens of a sample, d head dim, n ranks
/// Causal softmax(q k^T / sqrt(d)) v of q [b, h, s, d] with the k and v [b, g, s, d] of all ranks; the result is a view
/// of [b, s, h, d]. Each rank computes one block per rank (attention_part in layout/context_split.hpp), and merges them
/// by their log-sum-exps in f32 or f64.
///   forward    n - 1 messages of K and V to the next rank; block j is computed while block j + 1 arrives
///   backward   the same again, and n - 1 messages of dK and dV, in f32 or f64, that follow their block and return to
///              its rank; they travel during the computation of the next block
///   gathers    one all_gather of K and V; in backward again, and one reduce_scatter of dK and dV
/// Saved for backward: q, k, v, the result, and one number per head and token. All ranks of the group must call it; the
/// group must outlive the graph.
at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const RingSamples& samples,
                          Group& ring);

}  // namespace trireme
