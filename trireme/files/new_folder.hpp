#pragma once
// A folder that appears when it is complete.
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::files {

/// Its files are written to path(), FOLDER.tmp-HOST-PID-N beside it, which publish() renames. What was not published is
/// removed. CheckpointError if FOLDER exists and is not an empty folder, or cannot be made.
class NewFolder {
 public:
  explicit NewFolder(const std::filesystem::path& folder);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  const std::filesystem::path& path() const { return temporary_; }
  /// All files in it must be on disk.
  void publish();

 private:
  std::filesystem::path folder_, temporary_;
  std::string shown_;
};

}  // namespace trireme::files
