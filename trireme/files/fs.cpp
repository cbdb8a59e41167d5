#include "trireme/files/fs.hpp"

#include <cerrno>

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

namespace trireme::files {
namespace {

int errno_unless(bool ok) { return ok ? 0 : errno; }

int open_new(const std::filesystem::path& file, int more_flags) {
  return ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | more_flags, 0644);
}

/// Takes O_DIRECT off the descriptor; false if it was not there.
bool made_buffered(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0 && ::fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

class RealFs final : public Fs {
 public:
  int make_folder(const std::filesystem::path& folder) override {
    return errno_unless(::mkdir(folder.c_str(), 0755) == 0);
  }

  int create(const std::filesystem::path& file, bool direct, int& fd) override {
    fd = open_new(file, direct ? O_DIRECT : 0);
    if (fd < 0 && direct && errno == EINVAL) {
      // Some kernels make the file before they find out that the file system has no direct writes.
      ::unlink(file.c_str());
      fd = open_new(file, 0);
    }
    return errno_unless(fd >= 0);
  }

  int write(int fd, std::uint64_t offset, std::span<const std::byte> bytes) override {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t wrote = ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
      if (wrote > 0) {
        done += static_cast<std::size_t>(wrote);
      } else if (wrote == 0) {
        return ENOSPC;
      } else if (errno != EINTR) {
        const int error = errno;
        // Also after a short direct write that ended within a block.
        if (error != EINVAL || !made_buffered(fd)) return error;
      }
    }
    return 0;
  }

  int truncate(int fd, std::uint64_t size) override {
    int result = 0;
    do {
      result = ::ftruncate(fd, static_cast<off_t>(size));
    } while (result != 0 && errno == EINTR);
    return errno_unless(result == 0);
  }

  // Never repeated: after a failed fsync the kernel may have dropped the pages, and the next one would report success.
  int sync(int fd) override { return errno_unless(::fsync(fd) == 0); }
  // Nor is this: Linux has released the descriptor, whatever it returns.
  int close(int fd) override { return errno_unless(::close(fd) == 0); }

  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return errno_unless(::rename(from.c_str(), to.c_str()) == 0);
  }

  int sync_folder(const std::filesystem::path& folder) override {
    const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    const int error = errno_unless(::fsync(fd) == 0);
    ::close(fd);
    const bool cannot = error == EINVAL || error == ENOTSUP || error == ENOSYS;
    return cannot ? 0 : error;
  }

  int remove_file(const std::filesystem::path& file) override { return errno_unless(::unlink(file.c_str()) == 0); }
  int remove_folder(const std::filesystem::path& folder) override { return errno_unless(::rmdir(folder.c_str()) == 0); }
};

}  // namespace

Fs& real_fs() {
  static RealFs fs;  // has no state
  return fs;
}

}  // namespace trireme::files
