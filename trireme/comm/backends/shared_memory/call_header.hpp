#pragma once
// What precedes the data of a call in a stream: the call itself, which the readers compare with their own.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>

#include "trireme/comm/backends/shared_memory/byte_stream.hpp"
#include "trireme/comm/calls/call.hpp"

namespace trireme {

/// Streams advance by whole lines, so that elements of any type are aligned.
inline constexpr std::size_t kStreamLine = 64;
inline constexpr std::array<std::byte, kStreamLine> kPadding{};

/// So many bytes are published at once, or summed: the reader can begin, and both find them in their caches.
inline constexpr std::size_t kStreamChunk = std::size_t{128} << 10;

/// What is missing to a whole number of lines.
constexpr std::size_t padding_of(std::size_t bytes) { return (kStreamLine - bytes % kStreamLine) % kStreamLine; }

struct alignas(kStreamLine) CallHeader {
  CallRecord record;
  std::uint64_t counts;  // of an uneven all_to_all, which follow as int64, by rank
};

inline std::span<const std::byte> bytes_of(const CallHeader& header) {
  return std::as_bytes(std::span<const CallHeader, 1>(&header, 1));
}

/// The next header of a stream, which remains; none until it is there as a whole.
inline std::optional<CallHeader> next_header(const ByteStream& stream, int reader) {
  if (stream.available(reader) < sizeof(CallHeader)) return std::nullopt;
  CallHeader header;
  stream.copy_next(reader, std::as_writable_bytes(std::span<CallHeader, 1>(&header, 1)));
  if (!is_valid(header.record)) throw std::runtime_error("what it wrote to shared memory is no call");
  return header;
}

}  // namespace trireme
