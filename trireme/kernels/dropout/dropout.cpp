#include "trireme/kernels/dropout/dropout.hpp"

#include <optional>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "trireme/kernels/rows/rows.hpp"

// T rows, D columns
namespace trireme::kernels {
namespace {

using namespace detail;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int kBlocks = 16;           // Philox blocks in parallel: the compiler vectorizes the loops over them
constexpr int kAtOnce = 4 * kBlocks;  // elements

/// dropout_block for kBlocks consecutive blocks from `first` on.
void many_blocks(const DropoutKey& key, std::uint64_t first, std::uint32_t (&words)[kAtOnce]) {
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  std::uint32_t a[kBlocks], b[kBlocks], c[kBlocks], d[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    a[i] = low(first + static_cast<std::uint64_t>(i));
    b[i] = high(first + static_cast<std::uint64_t>(i));
    c[i] = low(key.purpose);
    d[i] = high(key.purpose);
  }
  std::uint32_t k0 = low(key.seed), k1 = high(key.seed);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kBlocks; ++i) {
      const std::uint64_t p = std::uint64_t{0xD2511F53} * a[i], q = std::uint64_t{0xCD9E8D57} * c[i];
      a[i] = high(q) ^ b[i] ^ k0;
      b[i] = low(q);
      c[i] = high(p) ^ d[i] ^ k1;
      d[i] = low(p);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < kBlocks; ++i) {
    words[4 * i] = a[i];
    words[4 * i + 1] = b[i];
    words[4 * i + 2] = c[i];
    words[4 * i + 3] = d[i];
  }
}

/// f(j, words, skipped, count): words[skipped] and following belong to columns j ... j + count - 1, for all n columns
/// of a row whose first element has index `element` in the unsharded tensor.
template <class F>
void for_words(const DropoutKey& key, std::uint64_t element, std::int64_t n, const F& f) {
  std::uint32_t words[kAtOnce];
  for (std::int64_t j = 0; j < n;) {
    const std::uint64_t next = element + static_cast<std::uint64_t>(j);
    const auto skipped = static_cast<std::int64_t>(next % 4), count = std::min(kAtOnce - skipped, n - j);
    many_blocks(key, next / 4, words);
    f(j, words, skipped, count);
    j += count;
  }
}

std::uint64_t first_element(const DropoutPlace& place, std::int64_t row) {
  return static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(place.row_width) +
         static_cast<std::uint64_t>(place.first_column);
}

/// y = x * (scale or 0). A product, so that NaN and infinity propagate even from dropped elements.
template <class S, class W = Wide<S>>
[[gnu::flatten]] void scale_kept(const S* x, const std::uint32_t (&words)[kAtOnce], std::int64_t skipped,
                                 std::uint32_t threshold, W scale, S* y, std::int64_t count) {
  W factors[kAtOnce];
  for (int i = 0; i < kAtOnce; ++i) factors[i] = words[i] >= threshold ? scale : W{0};
  const W* const mine = factors + skipped;
  for_lanes<W>(count, [&](std::int64_t i, auto n) { store(y + i, load(x + i, n) * load(mine + i, n), n); });
}

void require_place(const char* kernel, double p, const DropoutPlace& place, std::int64_t columns) {
  require<ConfigError>(p >= 0 && p < 1, kernel, ": p = ", p, ": must be at least 0 and below 1");
  require(place.rows.dim() == 1 && place.rows.scalar_type() == at::kLong, kernel, ": rows of sizes ",
          place.rows.sizes(), ", ", place.rows.scalar_type(), ": must be [T] of long");
  require_contiguous(kernel, "rows", place.rows);
  require(place.first_column >= 0 && place.first_column + columns <= place.row_width, kernel, ": columns ",
          place.first_column, " to ", place.first_column + columns - 1, " of rows that are ", place.row_width, " wide");
}

at::Tensor masked(const at::Tensor& x_TD, double p, const DropoutKey& key, const DropoutPlace& place,
                  const at::Tensor& residual_TD = {}) {
  const at::Tensor y_TD = at::empty_like(x_TD);
  if (!x_TD.is_cpu()) {
    dropout_on_cuda(x_TD, p, key, place, residual_TD, y_TD);
    return y_TD;
  }
  const std::int64_t T = x_TD.size(0), D = x_TD.size(1);
  const std::int64_t* const rows = place.rows.const_data_ptr<std::int64_t>();
  const std::uint32_t threshold = dropout_threshold(p);
  by_dtype("dropout", x_TD.scalar_type(), [&]<class S>(S) {
    using W = Wide<S>;
    const S* const from = x_TD.const_data_ptr<S>();
    S* const to = y_TD.mutable_data_ptr<S>();
    const W scale = static_cast<W>(1 / (1 - p));
    over_rows(T, D, [&, from, to](std::int64_t first, std::int64_t last) {
      for (std::int64_t t = first; t < last; ++t) {
        const S* const x = from + t * D;
        S* const y = to + t * D;
        for_words(key, first_element(place, rows[t]), D, [=](std::int64_t j, auto& words, auto skipped, auto count) {
          scale_kept(x + j, words, skipped, threshold, scale, y + j, count);
        });
      }
    });
  });
  return residual_TD.defined() ? y_TD.add_(residual_TD) : y_TD;
}

struct Dropout : torch::autograd::Function<Dropout> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x_TD, double p, const DropoutKey& key,
                            const DropoutPlace& place, const std::optional<at::Tensor>& residual_TD) {
    ctx->save_for_backward({place.rows});
    ctx->saved_data["residual"] = residual_TD.has_value();
    ctx->saved_data["p"] = p;
    ctx->saved_data["seed"] = static_cast<std::int64_t>(key.seed);
    ctx->saved_data["purpose"] = static_cast<std::int64_t>(key.purpose);
    ctx->saved_data["on_device"] = reinterpret_cast<std::int64_t>(key.purpose_on_device);
    ctx->saved_data["row_width"] = place.row_width;
    ctx->saved_data["first_column"] = place.first_column;
    return masked(x_TD, p, key, place, residual_TD.value_or(at::Tensor()));
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list dy) {
    require_first_order("dropout");
    auto& data = ctx->saved_data;
    const DropoutKey key{static_cast<std::uint64_t>(data["seed"].toInt()),
                         static_cast<std::uint64_t>(data["purpose"].toInt()),
                         reinterpret_cast<const std::int64_t*>(data["on_device"].toInt())};
    const DropoutPlace place{ctx->get_saved_variables()[0], data["row_width"].toInt(), data["first_column"].toInt()};
    return {masked(dy[0].contiguous(), data["p"].toDouble(), key, place), at::Tensor(), at::Tensor(), at::Tensor(),
            data["residual"].toBool() ? dy[0] : at::Tensor()};
  }
};

}  // namespace

at::Tensor dropout(const at::Tensor& x_TD, double p, const DropoutKey& key, const DropoutPlace& place,
                   const at::Tensor& residual_TD) {
  require_dtype("dropout", x_TD);
  require(x_TD.dim() == 2, "dropout: x of sizes ", x_TD.sizes(), ": must be [T, D]");
  require_contiguous("dropout", "x", x_TD);
  require_place("dropout", p, place, x_TD.size(1));
  require(place.rows.size(0) == x_TD.size(0) && place.rows.device() == x_TD.device(), "dropout: ", place.rows.size(0),
          " rows on ", place.rows.device(), " for x of sizes ", x_TD.sizes(), " on ", x_TD.device());
  if (residual_TD.defined())
    require_like("dropout", "residual", residual_TD, x_TD.sizes(), x_TD.scalar_type(), x_TD.device());
  if (p == 0) return residual_TD.defined() ? residual_TD + x_TD : x_TD;
  if (!wants_grad(x_TD, residual_TD)) return masked(x_TD, p, key, place, residual_TD);
  return Dropout::apply(x_TD, p, key, place, residual_TD.defined() ? std::optional(residual_TD) : std::nullopt);
}

at::Tensor keep_mask(double p, const DropoutKey& key, const DropoutPlace& place, std::int64_t columns) {
  require_place("keep_mask", p, place, columns);
  const std::int64_t T = place.rows.size(0);
  const at::Tensor mask_TD = at::empty({T, columns}, place.rows.options().dtype(at::kBool));
  if (!place.rows.is_cpu()) {
    keep_mask_on_cuda(p, key, place, mask_TD);
    return mask_TD;
  }
  const std::int64_t* const rows = place.rows.const_data_ptr<std::int64_t>();
  const std::uint32_t threshold = dropout_threshold(p);
  bool* const to = mask_TD.mutable_data_ptr<bool>();
  over_rows(T, columns, [&, to](std::int64_t first, std::int64_t last) {
    for (std::int64_t t = first; t < last; ++t)
      for_words(key, first_element(place, rows[t]), columns,
                [=, row = to + t * columns](std::int64_t j, auto& words, auto skipped, auto count) {
                  for (std::int64_t i = 0; i < count; ++i) row[j + i] = words[skipped + i] >= threshold;
                });
  });
  return mask_TD;
}

}  // namespace trireme::kernels
