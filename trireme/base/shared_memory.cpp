#include "trireme/base/shared_memory.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"

namespace trireme {

SharedMemory::SharedMemory(OwnedFd fd, std::size_t bytes) : fd_(std::move(fd)), size_(bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "shared memory cannot be mapped");
  data_ = static_cast<std::byte*>(memory);
}

SharedMemory::SharedMemory(const std::string& what, std::size_t bytes) {
  OwnedFd fd(::memfd_create("trireme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // A process without standard streams must not get one of their numbers: its children would write there.
  if (fd && fd.get() <= STDERR_FILENO) fd = OwnedFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  require<ConfigError>(static_cast<bool>(fd), "no descriptor for ", what, ": ", errno_text(errno));
  require<ConfigError>(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0, "no memory for ", what, " of ", bytes,
                       " bytes: ", write_error_text(errno));
  // If a process truncated it, the others would get SIGBUS.
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  *this = SharedMemory(std::move(fd), bytes);
}

SharedMemory SharedMemory::of_process(int pid, int fd, std::size_t bytes) {
  OwnedFd own(::open(text("/proc/", pid, "/fd/", fd).c_str(), O_RDWR | O_CLOEXEC));
  if (!own)
    throw std::system_error(errno, std::generic_category(),
                            text("the shared memory of process ", pid, " cannot be opened"));
  // Another process may have taken the number: reading beyond the end of its file would be a SIGBUS.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;  // the kernel may have added others
  if ((::fcntl(own.get(), F_GET_SEALS) & kSeals) != kSeals ||
      ::lseek(own.get(), 0, SEEK_END) != static_cast<off_t>(bytes))
    throw std::system_error(EBADF, std::generic_category(), text("process ", pid, " has no such shared memory"));
  SharedMemory memory(std::move(own), bytes);
  memory.close_fd();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace trireme
