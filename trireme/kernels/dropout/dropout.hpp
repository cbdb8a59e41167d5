#pragma once
// Dropout whose mask is a pure function of (seed, purpose, element): every layout of a run drops the same elements, on
// CPU and CUDA, and backward recomputes the mask instead of saving it.
//
// Element i of the unsharded tensor, rows * row_width elements over all ranks, uses word i % 4 of the Philox block with
// counter (i / 4, purpose) and key seed, and is kept if the word is at least p * 2^32. Golden test values depend on
// this mapping: it must not change.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "trireme/base/philox.hpp"

namespace trireme::kernels {

struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t purpose = 0;  // hashed by dropout_key()
  /// On a GPU, if not null: `purpose` is read from here when the kernel runs. A CUDA graph drops anew in every step.
  const std::int64_t* purpose_on_device = nullptr;
};

/// `purpose` identifies one use ("layers.3.mlp.dropout step 17"): uses with the same purpose drop the same elements.
constexpr DropoutKey dropout_key(std::uint64_t seed, std::string_view purpose) { return {seed, fnv1a(purpose)}; }

/// The words of elements 4 block ... 4 block + 3.
constexpr std::array<std::uint32_t, 4> dropout_block(const DropoutKey& key, std::uint64_t block) {
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     static_cast<std::uint32_t>(key.purpose), static_cast<std::uint32_t>(key.purpose >> 32)},
                    {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
}

/// Elements whose word is below it are dropped. p is in [0, 1), with a resolution of 2^-32.
inline std::uint32_t dropout_threshold(double p) {
  // Clamped: a p close to 1 would round to 2^32.
  return static_cast<std::uint32_t>(std::min(std::llround(p * 0x1p32), 0xFFFF'FFFFLL));
}

/// Maps local elements to the unsharded tensor: row t is row rows[t] (int64, on the device of x) of `row_width`
/// columns, and column j is column first_column + j.
struct DropoutPlace {
  at::Tensor rows;
  std::int64_t row_width = 0;
  std::int64_t first_column = 0;
};

/// y [T, D] = x / (1 - p) if the element is kept, 0 if it is dropped; dx likewise from dy. x is contiguous. Saved for
/// backward: rows. p = 0 returns x itself. `residual` [T, D], if defined, is added to the result, in the same pass.
at::Tensor dropout(const at::Tensor& x, double p, const DropoutKey& key, const DropoutPlace& place,
                   const at::Tensor& residual = {});

/// A bool mask [rows, columns] of the kept elements. For attention, rows are (sample, head, query) and columns keys.
at::Tensor keep_mask(double p, const DropoutKey& key, const DropoutPlace& place, std::int64_t columns);

namespace detail {
/// In dropout.cu. Writes y = x scaled where kept, plus `residual` if defined.
void dropout_on_cuda(const at::Tensor& x, double p, const DropoutKey& key, const DropoutPlace& place,
                     const at::Tensor& residual, const at::Tensor& y);
void keep_mask_on_cuda(double p, const DropoutKey& key, const DropoutPlace& place, const at::Tensor& mask);
}  // namespace detail

}  // namespace trireme::kernels
