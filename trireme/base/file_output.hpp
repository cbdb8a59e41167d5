#pragma once
// Files that never show half of something: records appended whole, and a file replaced at once.
#include <filesystem>
#include <string_view>

namespace trireme {

/// In one write(2) unless the system takes less at a time. 0, or the errno of the write that failed.
[[nodiscard]] int write_all(int fd, std::string_view bytes);

/// A file that only grows, by whole records. Nothing is buffered: what was appended survives the process.
class AppendFile {
 public:
  /// Opens or creates `path`; ConfigError if it cannot.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// DataError if the disk does not take it; what it took of the record is cut off again. One writer a file.
  void append(std::string_view record);

  /// Whether the file is empty or its last byte is `byte`.
  bool ends_with(char byte) const;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_;
};

/// Writes `contents` under another name and renames it to `path`. ConfigError if it cannot be opened, DataError if it
/// cannot be written.
void replace_file(const std::filesystem::path& path, std::string_view contents);

/// `folder` and its parents; ConfigError if they cannot be made.
void make_folder(const std::filesystem::path& folder);

}  // namespace trireme
