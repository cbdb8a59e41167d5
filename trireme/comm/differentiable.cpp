#include "trireme/comm/differentiable.hpp"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.hpp"

namespace trireme::differentiable {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

template <class Adjoint>
struct Kept final : torch::CustomClassHolder {
  explicit Kept(Adjoint it) : adjoint(std::move(it)) {}
  const Adjoint adjoint;
};

/// An autograd node for a linear operation. The adjoints are operations of this file: they create nodes themselves for
/// create_graph, and none otherwise. The type of the lambda gives the node its name.
template <class Adjoint>
struct LinearMap : torch::autograd::Function<LinearMap<Adjoint>> {
  template <class Forward>
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Forward& map, const Adjoint& adjoint) {
    ctx->saved_data["adjoint"] = c10::IValue::make_capsule(c10::make_intrusive<Kept<Adjoint>>(adjoint));
    return map(x);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    const auto kept = ctx->saved_data["adjoint"].toCapsule();
    return {static_cast<const Kept<Adjoint>&>(*kept).adjoint(dy[0]), at::Tensor(), at::Tensor()};
  }
};

template <class Forward, class Adjoint>
at::Tensor apply(const at::Tensor& x, const Forward& map, const Adjoint& adjoint) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return map(x);
  return LinearMap<Adjoint>::apply(x, map, adjoint);
}

/// `dim` as a non-negative index.
std::int64_t dim_of(const at::Tensor& x, std::int64_t dim, const char* operation, const Group& group) {
  require(x.dim() > 0 && dim >= -x.dim() && dim < x.dim(), operation, " on group ", group.str(), ": dim ", dim,
          " of a tensor of sizes ", x.sizes(), ": must be from ", -x.dim(), " to ", x.dim() - 1);
  return dim < 0 ? dim + x.dim() : dim;
}

/// The same, for a dim that is split.
std::int64_t cut_dim_of(const at::Tensor& x, std::int64_t dim, const char* operation, const Group& group) {
  const std::int64_t d = dim_of(x, dim, operation, group);
  require<ConfigError>(x.size(d) % group.size() == 0, operation, " on group ", group.str(), ": size ", x.size(d),
                       " of dim ", d, " of a tensor of sizes ", x.sizes(), " is not divisible by the group's size ",
                       group.size(), "\n  fix: pad it, or choose a size that ", group.size(), " divides");
  return d;
}

// A group splits and concatenates along dim 0: chunks of another dim are moved to a new leading dim, [n, ...]. That
// needs a copy exactly if a chunk is not contiguous: if any dim before `dim` is larger than 1.

at::Tensor cut(const at::Tensor& x, std::int64_t dim, std::int64_t n) {
  return x.unflatten(dim, {n, x.size(dim) / n}).movedim(dim, 0).contiguous();
}

at::Tensor join(const at::Tensor& chunks, std::int64_t dim) {
  return chunks.movedim(0, dim).flatten(dim, dim + 1).contiguous();
}

at::DimVector sizes_with(const at::Tensor& x, std::int64_t dim, std::int64_t size) {
  at::DimVector sizes(x.sizes());
  sizes[static_cast<std::size_t>(dim)] = size;
  return sizes;
}

at::Tensor zeros_without_memory(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::zeros({}, like.options().requires_grad(false)).expand(sizes);
}

at::Tensor joined_from_all(const at::Tensor& x, std::int64_t dim, Group& group) {
  return join(group.all_gather(x.contiguous().unsqueeze(0)).wait(), dim);
}

}  // namespace

at::Tensor sum_grads(const at::Tensor& x, Group& group) {
  if (group.size() == 1) return x;
  return apply(
      x, [](const at::Tensor& whole) { return whole; },
      [&group](const at::Tensor& dy) { return all_reduce(dy, group); });
}

at::Tensor all_reduce(const at::Tensor& x, Group& group) {
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group](const at::Tensor& mine) {
        return group.all_reduce_(mine.detach().clone(at::MemoryFormat::Contiguous)).wait();
      },
      [&group](const at::Tensor& dy) { return sum_grads(dy, group); });
}

at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, Group& group) {
  const std::int64_t d = dim_of(x, dim, "all_gather", group);
  if (group.size() == 1) return x;
  return apply(
      x, [&group, d](const at::Tensor& mine) { return joined_from_all(mine, d, group); },
      [&group, d](const at::Tensor& dy) { return reduce_scatter(dy, d, group); });
}

at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, Group& group) {
  const std::int64_t d = cut_dim_of(x, dim, "reduce_scatter", group);
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group, d](const at::Tensor& mine) {
        return group.reduce_scatter(cut(mine, d, group.size())).wait().squeeze(0);
      },
      [&group, d](const at::Tensor& dy) { return all_gather(dy, d, group); });
}

at::Tensor gather_replicated(const at::Tensor& x, std::int64_t dim, Group& group) {
  const std::int64_t d = dim_of(x, dim, "gather_replicated", group);
  if (group.size() == 1) return x;
  return apply(
      x, [&group, d](const at::Tensor& mine) { return joined_from_all(mine, d, group); },
      [&group, d](const at::Tensor& dy) { return split_replicated(dy, d, group); });
}

at::Tensor split_replicated(const at::Tensor& x, std::int64_t dim, Group& group) {
  const std::int64_t d = cut_dim_of(x, dim, "split_replicated", group);
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group, d](const at::Tensor& whole) {
        const std::int64_t each = whole.size(d) / group.size();
        return whole.narrow(d, group.rank() * each, each);
      },
      [&group, d](const at::Tensor& dy) { return gather_replicated(dy, d, group); });
}

at::Tensor all_to_all(const at::Tensor& x, Group& group) { return all_to_all(x, 0, 0, group); }

at::Tensor all_to_all(const at::Tensor& x, std::int64_t split_dim, std::int64_t concat_dim, Group& group) {
  const std::int64_t from = cut_dim_of(x, split_dim, "all_to_all", group);
  const std::int64_t to = dim_of(x, concat_dim, "all_to_all", group);
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group, from, to](const at::Tensor& mine) {
        return join(group.all_to_all(cut(mine, from, group.size())).wait(), to);
      },
      [&group, from, to](const at::Tensor& dy) { return all_to_all(dy, to, from, group); });
}

at::Tensor all_to_all(const at::Tensor& x, Group& group, const std::vector<std::int64_t>& send_counts,
                      const std::vector<std::int64_t>& recv_counts) {
  dim_of(x, 0, "all_to_all", group);
  if (group.size() == 1) {
    const std::vector<std::int64_t> all{x.size(0)};
    require(send_counts == all && recv_counts == all, "all_to_all on group ", group.str(),
            ": a group of one keeps its ", x.size(0), " rows; the counts must say so");
    return x;
  }
  return apply(
      x, [&](const at::Tensor& mine) { return group.all_to_all(mine.contiguous(), send_counts, recv_counts).wait(); },
      [&group, send_counts, recv_counts](const at::Tensor& dy) {
        return all_to_all(dy, group, recv_counts, send_counts);
      });
}

at::Tensor broadcast(const at::Tensor& x, int root, Group& group) {
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group, root](const at::Tensor& mine) {
        const bool is_root = group.rank() == root;
        return group.broadcast_(is_root ? mine.contiguous() : at::empty_like(mine, at::MemoryFormat::Contiguous), root)
            .wait();
      },
      [&group, root](const at::Tensor& dy) { return reduce(dy, root, group); });
}

at::Tensor reduce(const at::Tensor& x, int root, Group& group) {
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group, root](const at::Tensor& mine) {
        const at::Tensor sum = group.reduce(mine.contiguous(), root).wait();
        return group.rank() == root ? sum : zeros_without_memory(mine.sizes(), mine);
      },
      [&group, root](const at::Tensor& dy) { return broadcast(dy, root, group); });
}

at::Tensor scatter(const at::Tensor& x, int root, std::int64_t dim, Group& group) {
  const std::int64_t d = cut_dim_of(x, dim, "scatter", group);
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group, root, d](const at::Tensor& whole) {
        const std::int64_t each = whole.size(d) / group.size();
        const at::Tensor mine = at::empty(sizes_with(whole, d, each), whole.options().requires_grad(false));
        const at::Tensor chunks = group.rank() == root ? cut(whole, d, group.size()) : at::Tensor();
        return group.scatter_into(mine.unsqueeze(0), chunks, root).wait().squeeze(0);
      },
      [&group, root, d](const at::Tensor& dy) { return gather(dy, root, d, group); });
}

at::Tensor gather(const at::Tensor& x, int root, std::int64_t dim, Group& group) {
  const std::int64_t d = dim_of(x, dim, "gather", group);
  if (group.size() == 1) return x;
  return apply(
      x,
      [&group, root, d](const at::Tensor& mine) {
        const at::Tensor chunks = group.gather(mine.contiguous().unsqueeze(0), root).wait();
        return group.rank() == root ? join(chunks, d)
                                    : zeros_without_memory(sizes_with(mine, d, mine.size(d) * group.size()), mine);
      },
      [&group, root, d](const at::Tensor& dy) { return scatter(dy, root, d, group); });
}

at::Tensor stand_in(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::zeros({}, options.requires_grad(false)).requires_grad_().expand(sizes);  // at:: ignores the option
}

}  // namespace trireme::differentiable
