#include "trireme/base/patient_output.hpp"

#include <algorithm>
#include <cerrno>
#include <ostream>
#include <utility>

#include <poll.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme {
namespace {

constexpr std::size_t kWithoutWaiting = 4096;  // a pipe that poll reports as writable accepts that much (PIPE_BUF)

}  // namespace

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
  while (!bytes.empty()) {
    if (!takes_bytes_within(dropped_ > 0 ? std::chrono::milliseconds(0) : patience_)) {
      dropped_ += bytes.size();
      return true;
    }
    if (const std::size_t missing = std::exchange(dropped_, 0); missing > 0) {
      const std::string note =
          text("\n[trireme: ", human_bytes(static_cast<double>(missing)),
               " of output are missing here: nothing was read for ", patience_.count() / 1000, " s]\n");
      [[maybe_unused]] const ssize_t told = ::write(fd_, note.data(), note.size());
      continue;  // it may have filled the pipe
    }
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kWithoutWaiting));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool PatientBuffer::takes_bytes_within(std::chrono::milliseconds time) const {
  pollfd ready{fd_, POLLOUT, 0};
  const auto until = std::chrono::steady_clock::now() + time;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    const int count = ::poll(&ready, 1, std::max(0, static_cast<int>(left.count())));
    if (count >= 0 || errno != EINTR) return count != 0;  // an error is told by write()
  }
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
