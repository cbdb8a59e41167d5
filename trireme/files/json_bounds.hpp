#pragma once
// Size limits for untrusted JSON, checked before the JSON library parses it.
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::files {

// Note [Bounds of JSON]: the library parses about 60 MB per second, holds the current token twice together with
// everything since the previous one, and repeats it in its messages. Limits of 32 MiB in total, 1 MiB per string and 64
// KiB (numbers, brackets, white space) between two strings keep it within a second and a few MiB. A header of 32 MiB
// has more than 200,000 tensors.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{1} << 25, kMaxJsonTextBytes = std::size_t{1} << 20,
                             kMaxJsonGapBytes = std::size_t{1} << 16;

/// Describes the violated limit, or empty. A NUL byte is rejected too: the library treats it as the end of the input.
/// `max_depth` is for callers that let the library build a tree, which it serializes recursively.
std::string json_bounds_fault(std::string_view json, std::size_t max_bytes = kMaxJsonBytes,
                              std::size_t max_depth = kMaxJsonBytes);

/// Throws CheckpointError if a limit is violated. `file` is the name for messages.
void check_json_bounds(std::string_view json, const std::string& file);

/// The JSON library's parse error without error code, position and quoted input, which may be long or malicious.
std::string json_fault(std::string_view what);

}  // namespace trireme::files
