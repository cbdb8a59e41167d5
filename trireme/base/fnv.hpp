#pragma once
// The 64-bit FNV-1a hash: names of random streams, short fingerprints. Not for data that somebody may forge.
#include <cstdint>
#include <string_view>

namespace trireme {

inline constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325, kFnvPrime = 0x100000001b3;

/// Of `text` after what `hash` is of.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = kFnvStart) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

}  // namespace trireme
