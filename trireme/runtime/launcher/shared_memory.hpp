#pragma once
// Memory shared between a process and its launcher, so that its last actions can be read after it died.
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/runtime/launcher/rank_process.hpp"

namespace trireme::launcher {

class SharedMemory {
 public:
  /// Zero-initialized. `bytes` 0: none.
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    fd_ = above_stdio(OwnedFd(::memfd_create("trireme flight record", MFD_CLOEXEC | MFD_ALLOW_SEALING)),
                      "a flight record");
    require<ConfigError>(::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0, "no memory for a flight record of ",
                         bytes, " bytes: ", write_error_text(errno));
    // If a process truncated it, we would get SIGBUS.
    ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (memory_ == MAP_FAILED) memory_ = nullptr;
    require(memory_ != nullptr, "cannot map a flight record: ", errno_text(errno));
  }
  ~SharedMemory() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  SharedMemory(SharedMemory&& other) noexcept
      : bytes_(other.bytes_), fd_(std::move(other.fd_)), memory_(std::exchange(other.memory_, nullptr)) {}
  SharedMemory& operator=(SharedMemory&&) = delete;

  int fd() const { return fd_.get(); }  // -1: none
  const void* memory() const { return memory_; }

 private:
  std::size_t bytes_;
  OwnedFd fd_{};
  void* memory_ = nullptr;
};

}  // namespace trireme::launcher
