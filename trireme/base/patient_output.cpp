#include "trireme/base/patient_output.hpp"

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme {
namespace {

constexpr std::size_t kWithoutWaiting = 4096;  // a pipe that poll reports as writable accepts that much (PIPE_BUF)

}  // namespace

/// A description of its own: others that write to the terminal must not get EAGAIN.
PatientBuffer::PatientBuffer(int fd, std::chrono::milliseconds patience)
    : own_(::isatty(fd) == 1 ? ::open(text("/proc/self/fd/", fd).c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
                             : -1),
      fd_(own_ ? own_.get() : fd),
      patience_(patience) {}

PatientBuffer::~PatientBuffer() { flush(); }

PatientBuffer::int_type PatientBuffer::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char byte = traits_type::to_char_type(c);
  return xsputn(&byte, 1) == 1 ? c : traits_type::eof();
}

std::streamsize PatientBuffer::xsputn(const char* bytes, std::streamsize size) {
  const std::scoped_lock lock(mutex_);
  pending_.append(bytes, static_cast<std::size_t>(size));
  return pending_.size() < kWithoutWaiting || flush() ? size : 0;
}

int PatientBuffer::sync() { return flush() ? 0 : -1; }

bool PatientBuffer::flush() {
  const std::scoped_lock lock(mutex_);
  return write(std::exchange(pending_, {}));
}

/// False: an error, such as a reader that is gone.
bool PatientBuffer::write(std::string_view bytes) {
  if (bytes.empty()) return true;
  if (dropped_ > 0) {
    const std::string note =
        text("\n[trireme: ", human_bytes(static_cast<double>(dropped_)),
             " of output are missing here: nothing was read for ", patience_.count() / 1000, " s]\n");
    const Written told = write_patiently(note, std::chrono::milliseconds(0));
    if (told == Written::nobody_reads) dropped_ += bytes.size();
    if (told != Written::all) return told != Written::error;
    dropped_ = 0;
  }
  const Written written = write_patiently(bytes, patience_);
  if (written == Written::nobody_reads) dropped_ = bytes.size();
  return written != Written::error;
}

/// `patience`: since the last byte that was taken.
PatientBuffer::Written PatientBuffer::write_patiently(std::string_view bytes,
                                                      std::chrono::milliseconds patience) const {
  using Clock = std::chrono::steady_clock;
  for (auto until = Clock::now() + patience; !bytes.empty();) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    pollfd ready{fd_, POLLOUT, 0};
    const int count = ::poll(&ready, 1, std::max(0, static_cast<int>(left.count())));
    if (count == 0) return Written::nobody_reads;
    if (count < 0 && errno != EINTR) return Written::error;
    if (count < 0) continue;
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kWithoutWaiting));
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
      until = Clock::now() + patience;
    } else if (written < 0 && errno == EAGAIN) {  // a terminal has room for a byte, and a line needs two
      if (Clock::now() >= until) return Written::nobody_reads;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } else if (written < 0 && errno != EINTR) {
      return Written::error;
    }
  }
  return Written::all;
}

PatientOutput::PatientOutput(std::ostream& stream, int fd) : buffer_(fd), stream_(stream) {
  stream_.flush();
  before_ = stream_.rdbuf(&buffer_);
}

PatientOutput::~PatientOutput() {
  stream_.flush();
  stream_.rdbuf(before_);
}

}  // namespace trireme
