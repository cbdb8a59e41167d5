#pragma once
// Differentiable collectives for autograd, each with its adjoint. All of them are here and nowhere else.
//
// A tensor is *replicated* over a group if all ranks hold the same one: everything computed from it is the same
// on all ranks, its loss counts once, and its gradient is complete on every rank. A tensor *varies* if each rank holds
// its own: the losses of the ranks add up, and each rank has the gradient of its own tensor. An operation that confuses
// the two causes the classic factor of n; gradcheck.hpp detects it.
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
// The backward of each operation *is* its adjoint from this table, so double backward is correct too.
//
// Rules for all of them:
// - x requires grad on all ranks or on none, and every rank uses y in the loss it calls backward() on: a rank whose
//   backward does not reach this node leaves the others waiting. A rank that does not use y adds `0 * y.sum()` to its
//   loss.
// - `dim` is any dim of x, negative ones count from the end. The size that is split must be divisible by the group
// size.
// - A group of one returns x itself. With grad mode off, or if x does not require grad, no node is created.
// - y may share the memory of x (sum_grads, split_replicated, the root of broadcast): do not write to it in place. It
//   is contiguous, except where it is a view of x (sum_grads, split_replicated) or zeros without storage.
// - Incoming gradients are never written to, and may have any strides.
// - The group must outlive the graph: a node holds a reference to it.
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/group.hpp"

namespace trireme::differentiable {

/// y = x, dx = sum_r dy. Megatron's f: before sharded weights, whose gradients of x are partial sums.
at::Tensor sum_grads(const at::Tensor& x, Group& group);
/// y = sum_r x, dx = dy. Megatron's g: after a matmul whose inner dim is sharded.
at::Tensor all_reduce(const at::Tensor& x, Group& group);

/// y = cat_r x, dx = my part of sum_r dy. The computation after it differs between the ranks (sequence parallel).
at::Tensor all_gather(const at::Tensor& x, std::int64_t dim, Group& group);
/// y = my part of sum_r x, dx = cat_r dy.
at::Tensor reduce_scatter(const at::Tensor& x, std::int64_t dim, Group& group);

/// y = cat_r x, dx = my chunk of dy. The computation after it is the same on every rank: its gradient is complete.
at::Tensor gather_replicated(const at::Tensor& x, std::int64_t dim, Group& group);
/// y = my chunk of x, dx = cat_r dy.
at::Tensor split_replicated(const at::Tensor& x, std::int64_t dim, Group& group);

/// Chunk i of x along dim 0 goes to rank i; y is the chunks received from ranks 0, 1, ...; dx is dy sent back.
at::Tensor all_to_all(const at::Tensor& x, Group& group);
/// Chunk i of x along `split_dim` goes to rank i; the received chunks are concatenated along `concat_dim` (Ulysses:
/// heads for tokens).
at::Tensor all_to_all(const at::Tensor& x, std::int64_t split_dim, std::int64_t concat_dim, Group& group);
/// The same with a given number of rows (of dim 0) per rank, zero allowed (experts).
at::Tensor all_to_all(const at::Tensor& x, Group& group, const std::vector<std::int64_t>& send_counts,
                      const std::vector<std::int64_t>& recv_counts);

// With a root. x and y have the same shape on all ranks. If only the root's x is read, the others only provide a shape
// (stand_in creates such an x) and get zeros as its gradient; if only the root gets a y, the others get zeros without
// storage, whose gradient is not read.

/// y = the root's x, dx = sum_r dy on the root, zeros on the others.
at::Tensor broadcast(const at::Tensor& x, int root, Group& group);
/// y = sum_r x on the root, zeros on the others; dx = the root's dy.
at::Tensor reduce(const at::Tensor& x, int root, Group& group);

/// y = my chunk of the root's x, dx = cat_r dy on the root, zeros on the others. x has the full shape on all ranks.
at::Tensor scatter(const at::Tensor& x, int root, std::int64_t dim, Group& group);
/// y = cat_r x on the root, zeros on the others; dx = my chunk of the root's dy.
at::Tensor gather(const at::Tensor& x, int root, std::int64_t dim, Group& group);

/// Zeros without storage that require grad: the x of a rank that only provides its shape.
at::Tensor stand_in(at::IntArrayRef sizes, const at::TensorOptions& options);

}  // namespace trireme::differentiable
