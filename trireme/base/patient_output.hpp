#pragma once
// Output of a program that must go on if nobody reads it: a stopped terminal (Ctrl-S), a hung ssh, a forgotten pipe.
#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <mutex>
#include <streambuf>
#include <string>
#include <string_view>

namespace trireme {

/// Writes to a descriptor. A slow reader gets everything: the writer waits for it. One that has read nothing for
/// `patience` is not waited for any more: output is dropped until it reads again; then it is told how much.
/// Thread-safe.
class PatientBuffer final : public std::streambuf {
 public:
  explicit PatientBuffer(int fd, std::chrono::milliseconds patience = std::chrono::milliseconds(2000))
      : fd_(fd), patience_(patience) {}
  ~PatientBuffer() override;

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* bytes, std::streamsize size) override;
  int sync() override;

 private:
  bool flush();
  bool write(std::string_view bytes);
  bool takes_bytes_within(std::chrono::milliseconds time) const;

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
