#pragma once
// Loops over tokens, several at a time: at -O2 the compiler makes vectors of none of them by itself.
#include <cstddef>
#include <cstdint>
#include <span>

namespace trireme::data {

/// The largest of `tokens`; 0 when there are none.
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
