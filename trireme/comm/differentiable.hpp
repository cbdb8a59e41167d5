#pragma once
// Collectives that autograd sees, each beside its adjoint. All of them, and nowhere else.
//
// A tensor is *replicated* over a group when all ranks hold the same one: what is computed from it is the same
// everywhere, its loss counts once, and its gradient is whole on every rank. A tensor *varies* when each rank holds its
// own: the losses of the ranks add up, and each rank has the gradient of its own tensor. An operation that takes the
// one for the other is the classic factor of n; gradcheck.hpp tells them apart.
//
//   y = operation(x)            x            y            y is             dx is               adjoint
//   sum_grads                   replicated   varies       x                sum_r dy            all_reduce
//   all_reduce                  varies       replicated   sum_r x          dy                  sum_grads
//   all_gather                  varies       varies       cat_r x          my part of sum_r dy reduce_scatter
//   reduce_scatter              varies       varies       my part of sum   cat_r dy            all_gather
//   gather_replicated           varies       replicated   cat_r x          my chunk of dy      split_replicated
//   split_replicated            replicated   varies       my chunk of x    cat_r dy            gather_replicated
//   all_to_all                  varies       varies       parts exchanged  exchanged back      all_to_all
//   broadcast                   varies       varies       the root's x     root: sum_r dy      reduce
//   reduce                      varies       varies       root: sum_r x    the root's dy       broadcast
//   scatter                     varies       varies       my chunk of the  root: cat_r dy      gather
//                                                         root's x
//   gather                      varies       varies       root: cat_r x    my chunk of the     scatter
//                                                                          root's dy
//
// The backward of each *is* its adjoint here, so gradients of gradients are right too.
//
// Rules for all of them:
// - x requires grad on all ranks or on none, and every rank uses y in what it calls backward() on: a rank whose
//   backward does not come here leaves the others waiting. A rank without a use adds `0 * y.sum()` to its loss.
// - `dim` is any dim of x, also counted from the end (-1). The size that is cut must be divisible by the group's size.
// - A group of one returns x itself, as it is. With grad mode off, or where x does not require grad, no node is made.
// - y may share the memory of x (sum_grads, split_replicated, the root of broadcast): do not write to it in place. It
//   is contiguous, but where it is a view of x (sum_grads, split_replicated) or zeros that take no memory.
// - Incoming gradients are never written to, and may have any strides.
// - The group must outlive the graph: a node keeps a reference to it.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"

namespace trireme::differentiable {

/// y = x, dx = sum_r dy. Megatron's f: in front of weights that are cut, whose gradients of x are partial sums.
at::Tensor sum_grads(const at::Tensor& x, Group& group);
/// y = sum_r x, dx = dy. Megatron's g: behind a matmul whose inner dim is cut.
at::Tensor all_reduce(const at::Tensor& x, Group& group);

/// y = cat_r x, dx = my part of sum_r dy. What follows differs between the ranks (sequence parallel).
at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, Group& group);
/// y = my part of sum_r x, dx = cat_r dy.
at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, Group& group);

/// y = cat_r x, dx = my chunk of dy. What follows is the same on every rank: its gradient is whole already.
at::Tensor gather_replicated(const at::Tensor& x, std::int64_t dim, Group& group);
/// y = my chunk of x, dx = cat_r dy.
at::Tensor split_replicated(const at::Tensor& x, std::int64_t dim, Group& group);

/// Chunk i of x along dim 0 goes to rank i; y is what came from rank 0, 1, ...; dx is dy sent back.
at::Tensor all_to_all(const at::Tensor& x, Group& group);
/// Chunk i of x along `split_dim` goes to rank i; what came is joined along `concat_dim` (Ulysses: heads for tokens).
at::Tensor all_to_all(const at::Tensor& x, std::int64_t split_dim, std::int64_t concat_dim, Group& group);
/// The same with as many rows (of dim 0) for each rank as the counts say, zero allowed (experts).
at::Tensor all_to_all(const at::Tensor& x, Group& group, const std::vector<std::int64_t>& send_counts,
                      const std::vector<std::int64_t>& recv_counts);

// With a root. x and y have the same shape on all ranks. Where only the root's x is read, the others lend the shape of
// theirs (stand_in makes one) and get zeros as its gradient; where only the root gets a y, that of the others is zeros
// that take no memory, and its gradient is not read.

/// y = the root's x, dx = sum_r dy on the root, zeros on the others.
at::Tensor broadcast(const at::Tensor& x, int root, Group& group);
/// y = sum_r x on the root, zeros on the others; dx = the root's dy.
at::Tensor reduce(const at::Tensor& x, int root, Group& group);

/// y = my chunk of the root's x, dx = cat_r dy on the root, zeros on the others. x is whole on all ranks.
at::Tensor scatter(const at::Tensor& x, int root, std::int64_t dim, Group& group);
/// y = cat_r x on the root, zeros on the others; dx = my chunk of the root's dy.
at::Tensor gather(const at::Tensor& x, int root, std::int64_t dim, Group& group);

/// Zeros that take no memory and require grad: the x of a rank that only lends its shape.
at::Tensor stand_in(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace trireme::differentiable
