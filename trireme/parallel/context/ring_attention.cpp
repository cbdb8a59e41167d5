#include "trireme/parallel/context/ring_attention.hpp"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/attention/attention_block.hpp"
#include "trireme/kernels/rows/dtype.hpp"
#include "trireme/kernels/rows/first_order.hpp"

namespace trireme {
namespace {

using kernels::BlockScores;
using kernels::PartialAttention;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

at::Tensor position_list(const std::vector<Range>& ranges, at::Device device) {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges)
    parts.push_back(at::arange(range.begin, range.end, at::TensorOptions(at::kLong).device(device)));
  return at::cat(parts);
}

/// Part of the (query, key) pairs between this rank and another.
struct Block {
  AttentionPart part;
  BlockScores mask;
};

/// The samples on a ring of ranks.
struct Ring {
  RingSamples samples;
  Group* group;
  std::int64_t length;  // tokens of a sample on each rank

  int size() const { return group->size(); }
  int rank() const { return group->rank(); }
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }
  /// The rank whose keys are here after `hop` messages.
  int owner(int hop) const { return (rank() + size() - hop) % size(); }

  std::vector<Range> positions(int of_rank, Range tokens) const {
    return positions_of(tokens_over_cp(samples.whole_length, size(), of_rank, samples.order), tokens);
  }

  /// None if no query of this rank attends to a key of the other.
  std::optional<Block> block(int other, at::Device device) const {
    const std::optional<AttentionPart> part = attention_part(samples.order, length, rank(), other);
    if (!part) return std::nullopt;
    const bool windowed = samples.window > 0 && samples.window < samples.whole_length;
    if (!windowed && !samples.documents_bS.defined())
      return Block{*part, {.causal = part->causal, .softcap = samples.softcap}};
    const std::vector<Range> queries = positions(rank(), part->queries), keys = positions(other, part->keys);
    if (windowed && !reaches(queries, keys)) return std::nullopt;
    const at::Tensor q = position_list(queries, device), k = position_list(keys, device);
    const at::Tensor distance_qk = q.unsqueeze(1) - k.unsqueeze(0);
    at::Tensor sees = distance_qk.ge(0);
    if (windowed) sees = sees.logical_and_(distance_qk.lt(samples.window));
    sees = sees.view({1, 1, q.size(0), k.size(0)});
    if (samples.documents_bS.defined()) {
      const at::Tensor of_queries = samples.documents_bS.index_select(1, q).unsqueeze(2),
                       of_keys = samples.documents_bS.index_select(1, k).unsqueeze(1);
      sees = sees.logical_and(of_queries.eq(of_keys).unsqueeze(1));
    }
    return Block{*part, {.sees = sees, .softcap = samples.softcap}};
  }

  /// Whether the window of any query contains a key.
  bool reaches(const std::vector<Range>& queries, const std::vector<Range>& keys) const {
    for (const Range& q : queries)
      for (const Range& k : keys)
        if (k.begin < q.end && q.begin - (k.end - 1) < samples.window) return true;
    return false;
  }
};

// A rank's K and V, and their gradients, are one tensor [2, b, g, s, d], and one message.

at::Tensor narrowed(const at::Tensor& kv, int which, Range keys) {
  return kv.select(0, which).narrow(2, keys.begin, keys.size());
}

/// Calls visit(owner, kv) for the K and V of every rank, first those of this one.
template <class Visit>
void for_each_rank(const Ring& ring, const at::Tensor& k, const at::Tensor& v, Visit visit) {
  at::Tensor here = at::stack({k, v});
  if (ring.samples.gathers) {
    const at::Tensor all = ring.group->all_gather(here.unsqueeze(0)).wait();
    for (int hop = 0; hop < ring.size(); ++hop) visit(ring.owner(hop), all[ring.owner(hop)]);
    return;
  }
  at::Tensor arriving = at::empty_like(here);
  for (int hop = 0; hop < ring.size(); ++hop) {
    std::optional<Pending> message;
    if (hop + 1 < ring.size())
      message.emplace(ring.group->batch({Message::send(here, ring.next()), Message::recv(arriving, ring.previous())}));
    visit(ring.owner(hop), here);
    if (message) std::move(*message).wait();
    std::swap(here, arriving);
  }
}

/// [b, heads, s, d] as rows [b s, heads, d].
at::Tensor as_rows(const at::Tensor& x) { return x.transpose(1, 2).flatten(0, 1); }
/// Back again, as a view.
at::Tensor as_samples(const at::Tensor& rows, std::int64_t samples) {
  return rows.unflatten(0, {samples, -1}).transpose(1, 2);
}

const std::vector<RingLaunch>& launches_of(const Ring& ring, int owner) {
  return (*ring.samples.plan)[static_cast<std::size_t>(owner)];
}

PartialAttention forward_by_plan(const Ring& ring, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor q_rows = as_rows(q);
  const auto wide = q.options().dtype(kernels::wide_dtype(q.scalar_type())).requires_grad(false);
  // No keys yet: the sum of their exponentials is 0.
  const at::Tensor out = at::zeros(q_rows.sizes(), wide),
                   lse = at::full({q_rows.size(0), q_rows.size(1)}, -std::numeric_limits<double>::infinity(), wide);
  for_each_rank(ring, k, v, [&](int owner, const at::Tensor& kv) {
    if (launches_of(ring, owner).empty()) return;
    const at::Tensor k_rows = as_rows(kv[0]), v_rows = as_rows(kv[1]);
    for (const RingLaunch& launch : launches_of(ring, owner)) {
      const auto taken = [](const at::Tensor& rows, const at::Tensor& which) { return rows.index_select(0, which); };
      const PartialAttention here =
          kernels::attention_of_pieces(taken(q_rows, launch.query_rows), taken(k_rows, launch.key_rows),
                                       taken(v_rows, launch.key_rows), launch.pieces);
      const PartialAttention both =
          kernels::merged({taken(out, launch.query_rows), taken(lse, launch.query_rows)}, here);
      out.index_copy_(0, launch.query_rows, both.out);
      lse.index_copy_(0, launch.query_rows, both.lse);
    }
  });
  return {as_samples(out.to(q.scalar_type()), q.size(0)), lse};
}

PartialAttention forward_of(const Ring& ring, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  if (ring.samples.plan) return forward_by_plan(ring, q, k, v);
  PartialAttention sum;
  for_each_rank(ring, k, v, [&](int owner, const at::Tensor& kv) {
    const std::optional<Block> block = ring.block(owner, q.device());
    if (!block) return;
    const Range queries = block->part.queries, keys = block->part.keys;
    const PartialAttention here = kernels::attention_block(q.narrow(2, queries.begin, queries.size()),
                                                           narrowed(kv, 0, keys), narrowed(kv, 1, keys), block->mask);
    if (!sum.out.defined()) {  // of this rank itself: every query sees its own key
      sum = {here.out.to(kernels::wide_dtype(here.out.scalar_type())), here.lse};
      return;
    }
    const PartialAttention both = kernels::merged(
        {sum.out.narrow(2, queries.begin, queries.size()), sum.lse.narrow(2, queries.begin, queries.size())}, here);
    sum.out.narrow(2, queries.begin, queries.size()).copy_(both.out);
    sum.lse.narrow(2, queries.begin, queries.size()).copy_(both.lse);
  });
  // The layout of the fused kernels: the token dim before the head dim.
  return {sum.out.transpose(1, 2).to(q.scalar_type()).contiguous().transpose(1, 2), sum.lse};
}

/// Collects the gradients of the K and V of every rank, and brings them there.
class GradientsOfKeys {
 public:
  GradientsOfKeys(const Ring& ring, const at::Tensor& k) : ring_(ring) {
    const at::DimVector sizes{2, k.size(0), k.size(1), k.size(2), k.size(3)};
    const auto wide = k.options().dtype(kernels::wide_dtype(k.scalar_type())).requires_grad(false);
    if (ring.samples.gathers) {
      at::DimVector of_all(sizes);
      of_all.insert(of_all.begin(), ring.size());
      all_ = at::zeros(of_all, wide);
      return;
    }
    own_ = at::zeros(sizes, wide);
    here_ = at::empty_like(own_);
    arriving_ = at::empty_like(own_);
  }

  /// In the order of for_each_rank. `write(dkv)` adds the gradients to dkv [2, b, g, s, d]. They are computed before:
  /// until then the sums of other ranks are on their way.
  template <class Write>
  void add(int owner, Write write) {
    if (all_.defined()) return write(all_[owner]);
    if (owner == ring_.rank()) return write(own_);
    // Those of the ranks that had this block before are received here, except by the first.
    if (message_) {
      std::move(*message_).wait();
      std::swap(here_, arriving_);
    } else {
      here_.zero_();
    }
    write(here_);
    message_.emplace(
        ring_.group->batch({Message::send(here_, ring_.next()), Message::recv(arriving_, ring_.previous())}));
  }

  /// [2, b, g, s, d] of this rank.
  at::Tensor finish() {
    if (all_.defined()) return ring_.group->reduce_scatter(all_).wait()[0];
    if (message_) {
      std::move(*message_).wait();
      own_.add_(arriving_);
    }
    return own_;
  }

 private:
  const Ring& ring_;
  at::Tensor all_;                    // [n, 2, b, g, s, d], if they are gathered
  at::Tensor own_, here_, arriving_;  // two buffers: one is sent while the other is received
  std::optional<Pending> message_;
};

/// What backward needs of forward. lse is [b s, heads] with a plan, else [b, heads, s].
struct KeptTensors {
  at::Tensor q, k, v, out, lse;
};

struct RingGradients {
  at::Tensor dq, dkv;  // [b, heads, s, d]; [2, b, g, s, d]
};

RingGradients backward_by_plan(const Ring& ring, const KeptTensors& kept, const at::Tensor& dout) {
  const at::Tensor q_rows = as_rows(kept.q), out_rows = as_rows(kept.out), dout_rows = as_rows(dout);
  const std::int64_t b = kept.q.size(0);
  const auto wide = kept.q.options().dtype(kernels::wide_dtype(kept.q.scalar_type())).requires_grad(false);
  const at::Tensor dq_rows = at::zeros(q_rows.sizes(), wide);
  GradientsOfKeys dkv(ring, kept.k);
  for_each_rank(ring, kept.k, kept.v, [&](int owner, const at::Tensor& kv) {
    if (launches_of(ring, owner).empty()) return dkv.add(owner, [](const at::Tensor&) {});
    const at::Tensor k_rows = as_rows(kv[0]), v_rows = as_rows(kv[1]);
    const at::Tensor dk_rows = at::zeros(k_rows.sizes(), wide), dv_rows = at::zeros(k_rows.sizes(), wide);
    for (const RingLaunch& launch : launches_of(ring, owner)) {
      const auto queries = [&](const at::Tensor& rows) { return rows.index_select(0, launch.query_rows); };
      const auto keys = [&](const at::Tensor& rows) { return rows.index_select(0, launch.key_rows); };
      const kernels::AttentionGradients parts =
          kernels::attention_of_pieces_backward(queries(dout_rows), queries(q_rows), keys(k_rows), keys(v_rows),
                                                queries(out_rows), queries(kept.lse), launch.pieces);
      dq_rows.index_add_(0, launch.query_rows, parts.dq.to(dq_rows.scalar_type()));
      dk_rows.index_add_(0, launch.key_rows, parts.dk.to(dk_rows.scalar_type()));
      dv_rows.index_add_(0, launch.key_rows, parts.dv.to(dv_rows.scalar_type()));
    }
    dkv.add(owner, [&](const at::Tensor& to) {
      to[0].add_(as_samples(dk_rows, b));
      to[1].add_(as_samples(dv_rows, b));
    });
  });
  return {as_samples(dq_rows, b), dkv.finish()};
}

RingGradients backward_by_blocks(const Ring& ring, const KeptTensors& kept, const at::Tensor& dout) {
  const at::ScalarType wide = kernels::wide_dtype(kept.q.scalar_type());
  at::Tensor dq = at::zeros(kept.q.sizes(), kept.q.options().dtype(wide));
  GradientsOfKeys dkv(ring, kept.k);
  for_each_rank(ring, kept.k, kept.v, [&](int owner, const at::Tensor& kv) {
    const std::optional<Block> block = ring.block(owner, kept.q.device());
    if (!block) return dkv.add(owner, [](const at::Tensor&) {});
    const Range queries = block->part.queries, keys = block->part.keys;
    const auto own = [&](const at::Tensor& x) { return x.narrow(2, queries.begin, queries.size()); };
    const kernels::AttentionGradients parts =
        kernels::attention_block_backward(own(dout), own(kept.q), narrowed(kv, 0, keys), narrowed(kv, 1, keys),
                                          own(kept.out), own(kept.lse).contiguous(), block->mask);
    own(dq).add_(parts.dq);
    dkv.add(owner, [&](const at::Tensor& to) {
      narrowed(to, 0, keys).add_(parts.dk);
      narrowed(to, 1, keys).add_(parts.dv);
    });
  });
  return {dq, dkv.finish()};
}

struct KeptRing final : torch::CustomClassHolder {
  explicit KeptRing(Ring it) : ring(std::move(it)) {}
  const Ring ring;
};

struct RingAttention : torch::autograd::Function<RingAttention> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const Ring& ring) {
    const PartialAttention all = forward_of(ring, q, k, v);
    ctx->save_for_backward({q, k, v, all.out, all.lse});
    ctx->saved_data["ring"] = c10::IValue::make_capsule(c10::make_intrusive<KeptRing>(ring));
    return all.out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    kernels::require_first_order("ring attention");
    const auto kept = ctx->saved_data["ring"].toCapsule();
    const Ring& ring = static_cast<const KeptRing&>(*kept).ring;
    const tensor_list saved = ctx->get_saved_variables();
    const KeptTensors tensors{saved[0], saved[1], saved[2], saved[3], saved[4]};
    const RingGradients found =
        ring.samples.plan ? backward_by_plan(ring, tensors, grads[0]) : backward_by_blocks(ring, tensors, grads[0]);
    const at::ScalarType dtype = tensors.q.scalar_type();
    return {found.dq.to(dtype), found.dkv[0].to(dtype), found.dkv[1].to(dtype), at::Tensor()};
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const RingSamples& samples,
                          Group& group) {
  require(q.size(2) * group.size() == samples.whole_length && k.size(2) == q.size(2), "ring attention over group ",
          group.str(), ": ", q.size(2), " queries and ", k.size(2), " keys on a rank, of ", samples.whole_length);
  const Ring ring{samples, &group, q.size(2)};
  if (!at::GradMode::is_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()))
    return forward_of(ring, q, k, v).out;
  return RingAttention::apply(q, k, v, ring);
}

}  // namespace trireme
