#include "trireme/data/prepare/text_file.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/gzip.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/base/zstd.hpp"

namespace trireme::data {
namespace {

constexpr std::size_t kCompressedBytes = std::size_t{1} << 18;

}  // namespace

std::size_t read_input(int fd, std::span<char> out, const std::string& shown) {
  constexpr int kPollMs = 200;  // a signal may have gone to another thread
  std::size_t done = 0;
  while (done < out.size()) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, kPollMs) <= 0) {
      if (StopSignals::received() != 0) throw Interrupted("interrupted; nothing was written");
      continue;
    }
    const ssize_t got = ::read(fd, out.data() + done, out.size() - done);
    if (got < 0 && errno == EINTR) continue;
    require<DataError>(got >= 0, shown, ": cannot be read after ", done, " bytes: ", errno_text(errno));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

TextFile::TextFile(const InputFile& file) : shown_(file.shown()), held_(file.held) {
  if (held_) {
    fd_ = OwnedFd(::fcntl(held_->fd.get(), F_DUPFD_CLOEXEC, 0));
    head_ = held_->head;
  } else {
    fd_ = OwnedFd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  }
  require<DataError>(static_cast<bool>(fd_), shown_, ": cannot be opened: ", errno_text(errno));
  if (held_ && held_->again) ::lseek(fd_.get(), 0, SEEK_SET);
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  if (file.compression == Compression::none) return;
  if (file.compression == Compression::gzip)
    decompressor_ = std::make_unique<Gunzip>(shown_);
  else
    decompressor_ = unzstd(shown_);
  compressed_ = std::make_unique_for_overwrite<char[]>(kCompressedBytes);
}

std::size_t TextFile::read_raw(std::span<char> out) {
  std::size_t done = std::min(head_.size(), out.size());
  std::copy_n(head_.begin(), done, out.begin());
  head_.remove_prefix(done);
  taken_ += done;
  const std::size_t got = read_input(fd_.get(), out.subspan(done), shown_);
  taken_ += got;
  return done + got;
}

std::size_t TextFile::read(std::span<char> out) {
  if (!decompressor_) return read_raw(out);
  std::size_t done = 0;
  while (done < out.size()) {
    if (waiting_.empty() && !ended_) {
      waiting_ = {compressed_.get(), read_raw({compressed_.get(), kCompressedBytes})};
      ended_ = waiting_.empty();
    }
    const std::size_t got = decompressor_->next(waiting_, out.subspan(done));
    done += got;
    if (!ended_ || got > 0) continue;
    decompressor_->finish();
    break;
  }
  return done;
}

}  // namespace trireme::data
