#include "trireme/files/xxh3.hpp"

#include <xxhash.h>

#include "trireme/base/error.hpp"

namespace trireme::files {

namespace {

Xxh3 from_library(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

bool parse_hex(std::string_view digits, std::uint64_t& number) {
  number = 0;
  for (const char c : digits) {
    const bool digit = c >= '0' && c <= '9', letter = c >= 'a' && c <= 'f';
    if (!digit && !letter) return false;
    number = number << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return true;
}

}  // namespace

struct Xxh3Stream::State {
  XXH3_state_t* state = XXH3_createState();
  ~State() { XXH3_freeState(state); }
};

Xxh3 xxh3(std::span<const std::byte> bytes) { return from_library(XXH3_128bits(bytes.data(), bytes.size())); }

std::string str(const Xxh3& hash) {
  std::string out;
  for (const std::uint64_t half : {hash.high, hash.low})
    for (int shift = 60; shift >= 0; shift -= 4) out += "0123456789abcdef"[half >> shift & 15];
  return out;
}

bool parse_xxh3(std::string_view digits, Xxh3& hash) {
  return digits.size() == 32 && parse_hex(digits.substr(0, 16), hash.high) && parse_hex(digits.substr(16), hash.low);
}

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  require(state_->state != nullptr, "no memory for a hash");
  reset();
}
Xxh3Stream::~Xxh3Stream() = default;
void Xxh3Stream::reset() { XXH3_128bits_reset(state_->state); }
void Xxh3Stream::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->state, bytes.data(), bytes.size());
}
Xxh3 Xxh3Stream::result() const { return from_library(XXH3_128bits_digest(state_->state)); }

}  // namespace trireme::files
