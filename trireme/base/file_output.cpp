#include "trireme/base/file_output.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/base/temporary_name.hpp"

namespace trireme {
namespace {

/// `named` is the file name to show to the user.
int open_or_throw(const std::filesystem::path& path, int flags, const std::filesystem::path& named) {
  const int fd = ::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, 0644);
  require<ConfigError>(fd >= 0, named.string(), ": cannot be opened for writing: ", errno_text(errno));
  return fd;
}

}  // namespace

void throw_not_written(const std::string& shown, std::size_t bytes, int error) {
  throw DataError(
      text(shown, ": cannot write ", bytes, " bytes: ", write_error_text(error), "\n  fix: ", write_error_fix(error)));
}

int write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (written == 0) {
      return EIO;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

AppendFile::AppendFile(std::filesystem::path path)
    : path_(std::move(path)), fd_(open_or_throw(path_, O_RDWR | O_APPEND, path_)) {}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view record) {
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  const int error = write_all(fd_, record);
  if (error == 0) return;
  // A device such as /dev/stdout cannot be truncated; its reader then gets a partial record.
  [[maybe_unused]] const int cut = before >= 0 ? ::ftruncate(fd_, before) : -1;
  throw_not_written(path_.string(), record.size(), error);
}

bool AppendFile::ends_with(char byte) const {
  struct stat facts{};
  if (::fstat(fd_, &facts) != 0 || facts.st_size == 0) return true;
  char last = '\0';
  return ::pread(fd_, &last, 1, facts.st_size - 1) == 1 && last == byte;
}

void replace_file(const std::filesystem::path& path, std::string_view contents) {
  remove_leftovers(path);
  const std::string temporary = temporary_name(path, 0).string();
  const int fd = open_or_throw(temporary, O_WRONLY | O_TRUNC, path);
  int error = write_all(fd, contents);
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  throw_not_written(path.string(), contents.size(), error);
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require<ConfigError>(!error, folder.string(), ": cannot be made a folder: ", error.message());
}

}  // namespace trireme
