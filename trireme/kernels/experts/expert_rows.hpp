#pragma once
// Tokens as rows of experts, and back: each token visits k experts, and has a row for each of them.
#include <ATen/core/Tensor.h>

namespace trireme::kernels {

/// rows [T k, D] with rows[place[t, j]] = x[t]. `place_Tk`, i64, holds each number below T k once.
///   backward   dx[t] = the sum over j of drows[place[t, j]]
/// Saved for backward: place_Tk. Sums in at least f32.
at::Tensor spread_rows(const at::Tensor& x_TD, const at::Tensor& place_Tk);

/// y [T, D] with y[t] = the sum over j of weights[t, j] rows[place[t, j]]. Weights are in f32, or f64 for rows in f64.
///   backward   drows[place[t, j]] = weights[t, j] dy[t],   dweights[t, j] = dy[t] rows[place[t, j]]
/// Saved for backward: rows, place_Tk and the weights. Sums in at least f32, rounded once.
at::Tensor gather_rows(const at::Tensor& rows_RD, const at::Tensor& place_Tk, const at::Tensor& weights_Tk);

}  // namespace trireme::kernels
