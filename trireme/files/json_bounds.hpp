#pragma once
// Bounds on JSON from strangers, checked before the JSON library reads it.
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::files {

// Note [Bounds of JSON]: the library reads about 60 MB a second, keeps the token at hand twice with everything since
// the last one, and repeats it in its messages. 32 MiB, 1 MiB a text and 64 KiB (numbers, brackets, white space)
// between two texts keep it within a second and a few MiB. A header of 32 MiB is one of more than 200,000 tensors.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 25, kMaxJsonTextBytes = std::size_t{1} << 20,
                             kMaxJsonGapBytes = std::size_t{1} << 16;

/// What in `json` is beyond them, or empty. A NUL is, too: the library takes it for the end of its input, whatever
/// follows. `max_depth` is for those who let the library build a tree, which it writes out by recursion.
std::string json_bounds_fault(std::string_view json, std::size_t max_bytes = kMaxJsonBytes,
                              std::size_t max_depth = kMaxJsonBytes);

/// Throws CheckpointError when something is. `file` stands for it in messages.
void check_json_bounds(std::string_view json, const std::string& file);

/// What the JSON library says is wrong, without its numbers and without what it has read: it may be long or hostile.
std::string json_fault(std::string_view what);

}  // namespace trireme::files
