#pragma once
// The file operations of a checkpoint behind one small interface: tests record them, let them fail, and replay crashes.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace trireme::files {

/// Every operation returns 0 or an errno. What is created must not exist, not even as a symlink; files get the mode
/// 0644, folders 0755. Thread-safe, also for several writes to one descriptor.
class Fs {
 public:
  virtual ~Fs() = default;

  virtual int make_folder(const std::filesystem::path& folder) = 0;  // EEXIST if there is anything with this name
  /// A new file (O_EXCL). `direct`: without the page cache (O_DIRECT), if the file system can; then addresses, offsets
  /// and sizes of writes should be multiples of kDirectAlign. A write that is refused is repeated through the page
  /// cache, as are all that follow.
  virtual int create(const std::filesystem::path& file, bool direct, int& fd) = 0;
  /// All bytes, in several writes if necessary.
  virtual int write(int fd, std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual int truncate(int fd, std::uint64_t size) = 0;
  virtual int sync(int fd) = 0;   // fsync. After an error the file is lost: nobody knows which bytes are on the disk
  virtual int close(int fd) = 0;  // the descriptor is gone even if this fails
  virtual int rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Makes creates, renames and removals in the folder durable. 0 also for file systems that cannot: there that is up
  /// to them.
  virtual int sync_folder(const std::filesystem::path& folder) = 0;
  virtual int remove_file(const std::filesystem::path& file) = 0;      // symlinks are removed, not followed
  virtual int remove_folder(const std::filesystem::path& folder) = 0;  // empty

  static constexpr std::size_t kDirectAlign = 4096;
};

/// The operating system's.
Fs& real_fs();

}  // namespace trireme::files
