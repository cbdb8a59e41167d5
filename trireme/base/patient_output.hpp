#pragma once
// Output of a program that must go on if nobody reads it: a stopped terminal (Ctrl-S), a hung ssh, a forgotten pipe.
#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

#include "trireme/base/owned_fd.hpp"

namespace trireme {

/// Writes to a descriptor. A slow reader gets everything: the writer waits for it. One that has read nothing for
/// `patience` is not waited for any more: output is dropped until it reads again; then it is told how much.
/// Thread-safe.
class PatientBuffer final : public std::streambuf {
 public:
  explicit PatientBuffer(int fd, std::chrono::milliseconds patience = std::chrono::milliseconds(2000));
  ~PatientBuffer() override;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* bytes, std::streamsize size) override;
  int sync() override;

 private:
  bool flush();
  bool write(std::string_view bytes);
  enum class Written { all, nobody_reads, error };
  Written write_patiently(std::string_view bytes, std::chrono::milliseconds patience) const;

  const OwnedFd own_;  // of a terminal, which would block although poll says that it does not
  const int fd_;
  const std::chrono::milliseconds patience_;
  std::recursive_mutex mutex_;
  std::string pending_;
  std::size_t dropped_ = 0;
};

/// While it lives, a stream writes to a descriptor by a PatientBuffer.
class PatientOutput {
 public:
  PatientOutput(std::ostream& stream, int fd);
  ~PatientOutput();
  PatientOutput(const PatientOutput&) = delete;
  PatientOutput& operator=(const PatientOutput&) = delete;

 private:
  PatientBuffer buffer_;
  std::ostream& stream_;
  std::streambuf* before_;
};

}  // namespace trireme
