#pragma once
// Files written under other names, which take their own names together when all of them are complete.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// One of them. ConfigError where it cannot be made, DataError where the disk does not take it.
class StagedFile {
 public:
  explicit StagedFile(std::filesystem::path path);
  /// Removes what was written, unless it was published.
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void append(std::string_view bytes);
  std::uint64_t size() const { return written_ + buffer_.size(); }

  /// For headers with counts that are known at the end, and for indexes made from what was written first.
  void overwrite(std::uint64_t offset, std::string_view bytes);
  void read_back(std::uint64_t offset, std::span<std::byte> out);

  const std::filesystem::path& path() const { return path_; }

 private:
  friend class StagedFiles;
  void flush();
  void settle();   // everything is on the disk
  void publish();  // the rename

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  std::string buffer_;
  std::uint64_t written_ = 0;
};

// Note [A set of files replaces another]: renames of several files are not one step, and a crash may come between two. The
// file added last is the key: one without which the others are refused (or, for a lone fact about them, not missed). An old
// key is removed before anything else changes, and the new one is renamed at the very end; so whatever opens is whole, and
// either old or new. What is on disk after a crash is complete where it has its name, because all files are written out
// before the first step.
class StagedFiles {
 public:
  StagedFile& add(const std::filesystem::path& path);
  /// An old file that the new set does not have: it goes away when the new set appears.
  void obsolete(const std::filesystem::path& path) { obsolete_.push_back(path); }
  /// Everything but the removals and renames: what can fail for want of room has not failed then. publish() does it otherwise.
  void settle();
  /// The first step of publish() alone, for those who publish several sets and want none of the old ones beside the new.
  void retract();
  /// `before_step`: called before each removal and each rename; tests stop there.
  void publish(const std::function<void()>& before_step = {});

 private:
  std::vector<std::unique_ptr<StagedFile>> files_;
  std::vector<std::filesystem::path> obsolete_;
};

}  // namespace trireme
