#include "trireme/files/mapped_file.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme::files {
namespace {

int opened(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO without a writer would block forever; regular files ignore it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  require<CheckpointError>(fd >= 0, path.string(), ": cannot be opened: ", std::strerror(errno));
  return fd;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : MappedFile(opened(path), path.string()) {}

MappedFile::MappedFile(int fd, std::string shown) : shown_(std::move(shown)) {
  struct stat facts{};
  void* memory = nullptr;
  const char* failed = nullptr;
  if (::fstat(fd, &facts) != 0) {
    failed = "fstat";
  } else if (S_ISREG(facts.st_mode) && facts.st_size > 0) {  // mmap refuses a length of 0
    memory = ::mmap(nullptr, static_cast<std::size_t>(facts.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (memory == MAP_FAILED) failed = "mmap";
  }
  const int error = errno;
  ::close(fd);  // the mapping stays valid without it
  require<CheckpointError>(failed == nullptr, shown_, ": ", failed, " failed: ", std::strerror(error));
  require<CheckpointError>(S_ISREG(facts.st_mode), shown_, " is not a regular file");
  bytes_ = {static_cast<const std::byte*>(memory), static_cast<std::size_t>(facts.st_size)};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : shown_(std::move(other.shown_)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(shown_, other.shown_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace trireme::files
