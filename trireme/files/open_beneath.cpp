#include "trireme/files/open_beneath.hpp"

#include <array>
#include <cerrno>
#include <climits>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trireme/base/owned_fd.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

// O_NONBLOCK: opening a FIFO without a writer would block; MappedFile rejects it afterwards.
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
constexpr std::string_view kBlobs = "../../blobs";

bool is_hash(std::string_view word) {
  return word.size() >= 32 && word.size() <= 128 &&
         word.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

bool is_base_name(std::string_view name) {
  return !name.empty() && name.size() <= NAME_MAX && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && !has_control_character(name);
}

int open_beneath(int folder_fd, const std::string& base_name, bool try_openat2) {
  if (!is_base_name(base_name)) {
    errno = EINVAL;
    return -1;
  }
  if (try_openat2) {
    open_how how{};
    how.flags = kFlags;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    const long fd = ::syscall(SYS_openat2, folder_fd, base_name.c_str(), &how, sizeof how);
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(fd);
  }
  return ::openat(folder_fd, base_name.c_str(), kFlags | O_NOFOLLOW);  // equivalent for a base name
}

bool is_path_beneath(std::string_view path) {
  constexpr int kMaxDepth = 32;
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    const std::size_t slash = path.find('/');
    if (!is_base_name(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
  return false;
}

int open_path_beneath(int folder_fd, const std::string& path) {
  if (!is_path_beneath(path)) {
    errno = EINVAL;
    return -1;
  }
  OwnedFd inner;
  std::size_t begin = 0;
  for (std::size_t slash; (slash = path.find('/', begin)) != std::string::npos; begin = slash + 1) {
    const std::string name = path.substr(begin, slash - begin);
    OwnedFd next(
        ::openat(inner ? inner.get() : folder_fd, name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!next) {
      // O_DIRECTORY comes first for the kernel: a symlink is "not a directory".
      struct stat facts{};
      const int error = errno;
      const bool link = ::fstatat(inner ? inner.get() : folder_fd, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
                        S_ISLNK(facts.st_mode);
      errno = link ? ELOOP : error;
      return -1;
    }
    inner = std::move(next);
  }
  const int fd = open_beneath(inner ? inner.get() : folder_fd, path.substr(begin));
  const int error = errno;
  inner = OwnedFd();
  errno = error;
  return fd;
}

int open_in_folder(int folder_fd, const std::string& base_name, bool try_openat2) {
  const int fd = open_beneath(folder_fd, base_name, try_openat2);
  if (fd >= 0 || errno != ELOOP) return fd;
  std::array<char, 512> buffer;  // longer links cannot be of either allowed kind
  const ssize_t length = ::readlinkat(folder_fd, base_name.c_str(), buffer.data(), buffer.size());
  const std::string target(buffer.data(), length < 0 ? 0 : static_cast<std::size_t>(length));
  if (is_base_name(target)) return open_beneath(folder_fd, target, try_openat2);
  const std::string prefix = std::string(kBlobs) + "/";
  if (!target.starts_with(prefix) || !is_hash(std::string_view(target).substr(prefix.size()))) {
    errno = ELOOP;
    return -1;
  }
  const int blobs = ::openat(folder_fd, kBlobs.data(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (blobs < 0) return -1;
  const int blob = open_beneath(blobs, target.substr(prefix.size()), try_openat2);
  const int error = errno;
  ::close(blobs);
  errno = error;
  return blob;
}

}  // namespace trireme::files
