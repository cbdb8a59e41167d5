#pragma once
// File output without torn writes: appending whole records, and atomically replacing a file.
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme {

/// One write(2) call, or more after a short write. Returns 0 or the errno of the failed write.
[[nodiscard]] int write_all(int fd, std::string_view bytes);

/// DataError "NAME: cannot write N bytes: why", with the fix. `shown`: the name of the file.
[[noreturn]] void throw_not_written(const std::string& shown, std::size_t bytes, int error);

/// An append-only file of whole records. Nothing is buffered: appended records survive a crash of the process.
class AppendFile {
 public:
  /// Opens or creates `path`; throws ConfigError on failure.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Throws DataError if the write fails; a partially written record is truncated again. One writer per file.
  void append(std::string_view record);

  /// Whether the file is empty or its last byte is `byte`.
  bool ends_with(char byte) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_;
};

/// Writes `contents` to a temporary name and renames it to `path`. Throws ConfigError if it cannot be opened, DataError
/// if it cannot be written.
void replace_file(const std::filesystem::path& path, std::string_view contents);

/// Creates `folder` and its parents; throws ConfigError on failure.
void make_folder(const std::filesystem::path& folder);

}  // namespace trireme
