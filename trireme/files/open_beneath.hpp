#pragma once
// Opening a file that a stranger named, without leaving the folder.
#include <string>
#include <string_view>

namespace trireme::files {

/// A name of a file in a folder, not a path: not empty, no /, not `.` or `..`, no control characters.
bool is_base_name(std::string_view name);

/// Opens the regular file `base_name` of the folder for reading; a link is not followed. Returns the descriptor, or -1
/// with errno: ELOOP for a link. `try_openat2`: tests turn it off; older kernels and some containers have it off.
int open_beneath(int folder_fd, const std::string& base_name, bool try_openat2 = true);

// Note [Links in a folder of shards]: an index names its files, and anybody may have written the index and the folder.
// Links are therefore not followed, but for two kinds, which cannot reach a file outside:
//   - to a base name: another file of the same folder, which is not a link itself
//   - to ../../blobs/<hex digits>: a snapshot of the Hugging Face cache, where all files are such links
// The path that a person gives, and `model.safetensors` or the index in the folder they gave, may be any link.
/// As above, and through the links of the note. -1 with ELOOP for any other link.
int open_shard(int folder_fd, const std::string& base_name, bool try_openat2 = true);

}  // namespace trireme::files
