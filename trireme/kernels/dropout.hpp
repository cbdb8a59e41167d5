#pragma once
// Dropout whose mask is a pure function of (seed, purpose, element): every layout of a run drops the same elements, on
// CPU and CUDA, and backward makes the mask again instead of keeping it.
//
// Element i of the whole tensor, rows * row_width numbers over all ranks, takes word i % 4 of the Philox block with
// counter (i / 4, purpose) and key seed, and is kept where the word is at least p * 2^32. This mapping is part of every
// golden number's meaning: it must not change.
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
  std::uint64_t purpose = 0;  // as dropout_key() hashes it
};

/// `purpose` names one use ("layers.3.mlp.dropout step 17"): two uses with the same words drop the same elements.
constexpr DropoutKey dropout_key(std::uint64_t seed, std::string_view purpose) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a, as in philox.hpp
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return {seed, hash};
}

/// The words of elements 4 block ... 4 block + 3.
constexpr std::array<std::uint32_t, 4> dropout_block(const DropoutKey& key, std::uint64_t block) {
  return philox4x32({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     static_cast<std::uint32_t>(key.purpose), static_cast<std::uint32_t>(key.purpose >> 32)},
                    {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
}

/// Elements whose word is below it are dropped. p is in [0, 1), and exact in steps of 2^-32.
inline std::uint32_t dropout_threshold(double p) {
  // Rounded, a p next to 1 would not fit.
  return static_cast<std::uint32_t>(std::min(std::llround(p * 0x1p32), 0xFFFF'FFFFLL));
}

/// Which elements of the whole tensor the local ones are: row t is row rows[t] (int64, on the device of x) of
/// `row_width` columns, and column j is column first_column + j.
struct DropoutPlace {
  at::Tensor rows;
  std::int64_t row_width = 0;
  std::int64_t first_column = 0;
};

/// y [T, D] = x / (1 - p) where the element is kept, 0 where it is dropped; dx likewise from dy. x is contiguous. Kept
/// for backward: rows. p = 0 returns x itself.
at::Tensor dropout(const at::Tensor& x, double p, const DropoutKey& key, const DropoutPlace& place);

/// [rows, columns] of bool: which elements are kept. For attention, rows are (sample, head, query) and columns keys.
at::Tensor keep_mask(double p, const DropoutKey& key, const DropoutPlace& place, std::int64_t columns);

namespace detail {
/// dropout.cu, or dropout_without_cuda.cpp. Writes y = x scaled where kept.
void dropout_on_cuda(const at::Tensor& x, double p, const DropoutKey& key, const DropoutPlace& place,
                     const at::Tensor& y);
void keep_mask_on_cuda(double p, const DropoutKey& key, const DropoutPlace& place, const at::Tensor& mask);
}  // namespace detail

}  // namespace trireme::kernels
