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

namespace trireme::files {

/// One of them. ConfigError where it cannot be made, DataError where the disk does not take it.
class StagedFile {
 public:
  /// `shown`: what messages call it; empty: the path.
  explicit StagedFile(std::filesystem::path path, std::string shown = "");
  /// Removes what was written, unless it was published.
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  void append(std::string_view bytes);
  std::uint64_t size() const { return written_ + buffer_.size(); }

  /// For headers with counts that are known at the end, and for indexes made from what was written first.
  void overwrite(std::uint64_t offset, std::string_view bytes);
  void read_back(std::uint64_t offset, std::span<std::byte> out);

  /// Everything is on the disk, and no more can come. StagedFiles does it otherwise; earlier it frees the descriptor, and
  /// a set of many large files does not wait for all of them at the end.
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

/// So that a crash of the machine cannot bring back older names in that folder. Some network file systems refuse: then it
/// is theirs.
void settle_folder(const std::filesystem::path& folder);

// Note [A set of files replaces another]: renames of several files are not one step, and a crash may come between two. The
// file added last is the key: one without which the others are refused (or, for a lone fact about them, not missed). An old
// key is removed before anything else changes, and the new one is renamed at the very end; so whatever opens is whole, and
// either old or new. What is on disk after a crash is complete where it has its name, because all files are written out
// before the first step.
class StagedFiles {
 public:
  StagedFile& add(const std::filesystem::path& path, const std::string& shown = "");
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

}  // namespace trireme::files
