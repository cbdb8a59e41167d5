#pragma once
// Opens a file whose name comes from an untrusted index, without leaving the folder (no path traversal, no symlinks).
#include <string>
#include <string_view>

namespace trireme::files {

/// Whether it is a plain file name, not a path: not empty, no /, not `.` or `..`, no control characters.
bool is_base_name(std::string_view name);

/// Opens the regular file `base_name` in the folder for reading; symlinks are not followed. Returns the file
/// descriptor, or -1 with errno: ELOOP for a symlink. `try_openat2` is false in tests; older kernels and some
/// containers lack openat2.
int open_beneath(int folder_fd, const std::string& base_name, bool try_openat2 = true);

/// Whether it is a path that stays in the folder: base names joined by /, at most 32.
bool is_path_beneath(std::string_view path);

/// Opens the regular file at such a path, as open_beneath(): no folder on the way may be a symlink either.
int open_path_beneath(int folder_fd, const std::string& path);

// Note [Links in a model folder]: an index names its files, and both index and folder may be untrusted.
// Symlinks are therefore not followed, except for two kinds, which cannot reach a file outside:
//   - to a base name: another file in the same folder, which is not a symlink itself
//   - to ../../blobs/<hex digits>: a snapshot in the Hugging Face cache, where all files are such symlinks
// This holds for every file in the folder, `model.safetensors` and the index too. The path given by the user may be any
// symlink.
/// Like open_beneath, but follows the symlinks allowed by the note. -1 with ELOOP for any other symlink.
int open_in_folder(int folder_fd, const std::string& base_name, bool try_openat2 = true);

}  // namespace trireme::files
