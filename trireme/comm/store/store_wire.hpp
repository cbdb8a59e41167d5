#pragma once
// The requests of the store: those of libtorch's TCPStore, so that Python ranks with env:// can join, and our greeting.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "trireme/base/sha256.hpp"

namespace trireme::store_wire {

/// The first byte of a request. Integers are in the order of this machine's bytes, as libtorch sends them; a key or
/// value is its length (8 bytes) and its bytes.
enum class Request : std::uint8_t {
  validate = 0,  // kMagic; the first request of a client, without an answer
  set = 1,       // key, value; no answer
  compare_set = 2,
  get = 3,
  add = 4,
  check = 5,
  wait = 6,
  number_of_keys = 7,
  delete_key = 8,
  append = 9,  // no answer
  multi_get = 10,
  multi_set = 11,  // no answer
  cancel_wait = 12,
  ping = 13,   // 4 bytes, which are the answer
  hello = 200  // ours, before all others: see Note [Greeting]
};

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
inline constexpr std::uint32_t kAsksForSecret = 0x3F59454B;       // instead of the answer to the first ping
inline constexpr std::uint8_t kReady = 0, kNotReady = 1;          // answers of check
inline constexpr std::uint8_t kStopWaiting = 0, kCanceled = 1;    // answers of wait and cancel_wait
inline constexpr std::uint8_t kHasSecret = 'S', kNoSecret = 'N';  // answers of hello

// libtorch's own limits.
inline constexpr std::uint64_t kMaxKeys = 128 * 1024, kMaxKeyBytes = 8 * 1024, kMaxValueBytes = 8 * 1024 * 1024;

// Note [Greeting]
// ~~~~~~~~~~~~~~~
// client: hello, nonce c. Server: kHasSecret, nonce s, proof("server", c, s), or kNoSecret. The client checks the proof
// and sends proof("client", c, s). So each side knows that the other has the secret, and nobody has sent it. To a
// client that does not say hello, a server with a secret sends kAsksForSecret and closes.
inline constexpr std::size_t kNonceBytes = 16, kProofBytes = 32;

inline std::string proof(std::string_view secret, std::string_view who, std::string_view c, std::string_view s) {
  return std::string(bytes_of(hmac_sha256(secret, std::string("trireme store ").append(who).append(c).append(s))));
}

template <class Number>
void put(std::string& bytes, Number number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);
  bytes.append(raw, sizeof number);
}

inline void put_bytes(std::string& bytes, std::string_view some) {
  put<std::uint64_t>(bytes, some.size());
  bytes.append(some);
}

}  // namespace trireme::store_wire
