#pragma once
// SIMD loops over tokens: at -O2 the compiler does not vectorize any of them by itself.
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::data {

/// The largest of `tokens`; 0 if empty.
std::uint32_t largest(std::span<const std::uint32_t> tokens);
/// to[i] = from[i].
void widen(std::span<const std::uint16_t> from, std::uint32_t* to);
/// to[i] = the low half of from[i].
void narrow(std::span<const std::uint32_t> from, std::uint16_t* to);

/// tokens[i] = from[i] and labels[i] = from[i + 1], for i < count.
void write_tokens_and_labels(const std::uint32_t* from, std::size_t count, std::int64_t* tokens, std::int64_t* labels);
/// to[i] = first + i.
void write_counted(std::int64_t first, std::size_t count, std::int64_t* to);

}  // namespace trireme::data
