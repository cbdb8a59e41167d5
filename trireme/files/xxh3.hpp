#pragma once
// XXH3-128, the hash of checkpoints: faster than any disk. It detects accidents, not forgery.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme::files {

struct Xxh3 {
  std::uint64_t high = 0, low = 0;
  bool operator==(const Xxh3&) const = default;
};

Xxh3 xxh3(std::span<const std::byte> bytes);

/// 32 hexadecimal digits, as xxh128sum prints it; and the inverse: false for anything else.
std::string str(const Xxh3& hash);
bool parse_xxh3(std::string_view digits, Xxh3& hash);

/// Of bytes that come in parts.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  void reset();
  void add(std::span<const std::byte> bytes);
  Xxh3 result() const;  // of the bytes since reset()

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::files
