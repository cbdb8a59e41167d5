#pragma once
// Memory that several processes of a host map: an anonymous file, gone with the last process that has it.
#include <cstddef>
#include <string>

#include "trireme/base/owned_fd.hpp"

namespace trireme {

class SharedMemory {
 public:
  /// None.
  SharedMemory() = default;
  /// Zero-initialized; pages take memory when they are first written. `what` is for the error: "a flight record".
  SharedMemory(const std::string& what, std::size_t bytes);
  /// That of another process of this host and user, or of this one: throws std::system_error if it cannot be opened.
  static SharedMemory of_process(int pid, int fd, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  int fd() const { return fd_.get(); }  // -1: none, or closed
  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  /// The memory stays; no other process can open it through this one any more.
  void close_fd() { fd_.reset(); }

 private:
  SharedMemory(OwnedFd fd, std::size_t bytes);

  OwnedFd fd_{};
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace trireme
