#pragma once
// Files that are written to temporary names and renamed together when all of them are complete.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::files {

/// One staged file. ConfigError if it cannot be created, DataError for write errors.
class StagedFile {
 public:
  /// `shown`: the name for messages; empty: the path.
  explicit StagedFile(std::filesystem::path path, std::string shown = "");
  /// Removes the temporary file, unless it was published.
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void append(std::string_view bytes);
  std::uint64_t size() const { return written_ + buffer_.size(); }

  /// For headers with counts that are known only at the end, and for indexes built from the data written before.
  void overwrite(std::uint64_t offset, std::string_view bytes);
  void read_back(std::uint64_t offset, std::span<std::byte> out);

  /// Flushes to disk and closes the file. StagedFiles does this too; calling it early frees the file descriptor, and
  /// avoids waiting for many large files at the end.
  void settle();

  const std::filesystem::path& path() const { return path_; }
  const std::string& shown() const { return shown_; }

 private:
  friend class StagedFiles;
  void flush();
  void publish();  // the rename

  std::filesystem::path path_, temporary_;
  std::string shown_;
  int fd_ = -1;
  std::string buffer_;
  std::uint64_t written_ = 0;
};

/// fsync of the folder, so that a machine crash cannot restore old names. Some network file systems do not support it:
/// then that guarantee is up to them.
void settle_folder(const std::filesystem::path& folder);

// Note [A set of files replaces another]: renames of several files are not atomic, and a crash may come between two.
// The file added last is the key: without it the others are rejected (or, if it only holds optional metadata, still
// usable). An old key is removed before anything else changes, and the new one is renamed last; so every set that can
// be opened is complete, and either old or new. After a crash every file under its final name is complete, because all
// files are flushed to disk before the first rename.
class StagedFiles {
 public:
  StagedFile& add(const std::filesystem::path& path, const std::string& shown = "");
  /// An old file that is not in the new set: it is removed when the new set is published.
  void obsolete(const std::filesystem::path& path) { obsolete_.push_back(path); }
  /// Everything except the removals and renames: afterwards a full disk can no longer cause an error. Part of
  /// publish().
  void settle();
  /// Only the first step of publish(), for callers that publish several sets and must not mix old ones with new ones.
  void retract();
  /// `before_step`: called before each removal and each rename; a hook for crash tests.
  void publish(const std::function<void()>& before_step = {});

 private:
  std::vector<std::unique_ptr<StagedFile>> files_;
  std::vector<std::filesystem::path> obsolete_;
};

}  // namespace trireme::files
