#pragma once
// Transposes a matrix of elements of any size.
#include <cstddef>
#include <cstring>
#include <span>

namespace trireme::checkpoint {

/// `in` is [rows, columns], `out` becomes [columns, rows].
inline void transpose(std::span<const std::byte> in, std::size_t rows, std::size_t columns, std::size_t element,
                      std::span<std::byte> out) {
  constexpr std::size_t kTile = 32;  // both sides stay in the cache
  for (std::size_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::size_t c = 0; c < columns; ++c)
      for (std::size_t r = r0; r < rows && r < r0 + kTile; ++r)
        std::memcpy(out.data() + (c * rows + r) * element, in.data() + (r * columns + c) * element, element);
}

}  // namespace trireme::checkpoint
