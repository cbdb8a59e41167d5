#pragma once
// SHA-256 and HMAC-SHA256 (FIPS 180-4, RFC 2104): proofs that a peer knows a secret.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

using Sha256 = std::array<std::uint8_t, 32>;

Sha256 sha256(std::string_view data);
Sha256 hmac_sha256(std::string_view key, std::string_view data);

/// Takes the same time wherever the first difference is, so that a proof cannot be guessed byte by byte.
bool same_bytes(std::string_view a, std::string_view b);

/// "9f86d0..."
std::string hex_digits(std::string_view bytes);

/// `count` bytes from the system's generator.
std::string random_bytes(std::size_t count);

inline std::string_view bytes_of(const Sha256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace trireme
