#include "trireme/files/random_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme::files {
namespace {

int opened_for_reading(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO without a writer would block forever; regular files ignore it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd >= 0) return fd;
  const int error = errno;
  throw DataError(
      text(path.string(), ": cannot be opened: ", errno_text(error),
           error == EMFILE ? "\n  fix: ulimit -n 65536 (each file of a data set stays open), or merge its files" : ""));
}

FileStamp stamp_of(const struct stat& facts) {
  return {.device = facts.st_dev,
          .inode = facts.st_ino,
          .size = static_cast<std::uint64_t>(facts.st_size),
          .changed_s = facts.st_mtim.tv_sec,
          .changed_ns = facts.st_mtim.tv_nsec};
}

}  // namespace

RandomReader::RandomReader(const std::filesystem::path& path) : RandomReader(opened_for_reading(path), path.string()) {}

RandomReader::RandomReader(int fd, std::string shown) : shown_(std::move(shown)), fd_(fd) {
  struct stat facts{};
  const int error = ::fstat(fd_, &facts) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(facts.st_mode)) {
    ::close(fd_);
    require<ReadFailed>(error == 0, shown_, ": fstat failed: ", errno_text(error));
    throw DataError(text(shown_, " is not a regular file\n  fix: name a file"));
  }
  stamp_ = stamp_of(facts);
}

RandomReader::RandomReader(RandomReader&& other) noexcept
    : shown_(std::move(other.shown_)), fd_(std::exchange(other.fd_, -1)), stamp_(other.stamp_) {}

RandomReader& RandomReader::operator=(RandomReader&& other) noexcept {
  std::swap(shown_, other.shown_);
  std::swap(fd_, other.fd_);
  std::swap(stamp_, other.stamp_);
  return *this;
}

RandomReader::~RandomReader() {
  if (fd_ >= 0) ::close(fd_);
}

void RandomReader::read(std::uint64_t offset, std::span<std::byte> out) const {
  require(offset <= size() && out.size() <= size() - offset, shown_, ": ", out.size(), " bytes from byte ", offset,
          " on leave a file of ", size(), " bytes");
  for (std::size_t done = 0; done < out.size();) {
    const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    const int error = got < 0 ? errno : 0;
    require<ReadFailed>(error == 0, shown_, ": cannot be read at byte ", offset + done, ": ", errno_text(error),
                        "\n  fix: check the disk or the network that the file is on");
    struct stat facts{};
    ::fstat(fd_, &facts);
    throw DataError(text(shown_, ": ends at byte ", offset + done, " while bytes ", offset, " to ", offset + out.size(),
                         " are read: it had ", size(), " bytes when it was opened and has ", facts.st_size, " now",
                         "\n  fix: put the file back as it was, and do not write to data that a run reads"));
  }
  check_unchanged();  // after the read: proves that the bytes were read before any change
}

bool RandomReader::read_direct(std::uint64_t offset, std::span<std::byte> out, const DirectScratch& scratch) const {
  require(offset <= size() && out.size() <= size() - offset, shown_, ": ", out.size(), " bytes from byte ", offset,
          " on leave a file of ", size(), " bytes");
  const std::uint64_t begin = offset / DirectScratch::kAlign * DirectScratch::kAlign;
  const std::size_t before = offset - begin, wanted = before + out.size();
  const std::size_t asked = (wanted + DirectScratch::kAlign - 1) / DirectScratch::kAlign * DirectScratch::kAlign;
  require(asked <= scratch.memory().size(), shown_, ": ", out.size(), " bytes are too many for the scratch memory");
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, flags | O_DIRECT) != 0) return false;
  std::size_t done = 0;
  for (ssize_t got = 1; done < wanted && got > 0; done += static_cast<std::size_t>(std::max<ssize_t>(got, 0))) do
      got = ::pread(fd_, scratch.memory().data() + done, asked - done, static_cast<off_t>(begin + done));
    while (got < 0 && errno == EINTR);
  ::fcntl(fd_, F_SETFL, flags);
  if (done < wanted) return false;
  std::memcpy(out.data(), scratch.memory().data() + before, out.size());
  check_unchanged();
  return true;
}

DirectScratch::DirectScratch(std::size_t bytes)
    : size_((bytes + kAlign - 1) / kAlign * kAlign + kAlign),  // a range of `bytes` touches at most one unit more
      memory_(static_cast<std::byte*>(::operator new(size_, std::align_val_t{kAlign}))) {}

DirectScratch::~DirectScratch() { ::operator delete(memory_, std::align_val_t{kAlign}); }

void RandomReader::check_unchanged() const {
  struct stat facts{};
  if (::fstat(fd_, &facts) == 0 && stamp_of(facts) == stamp_) return;
  throw DataError(
      text(shown_, ": was changed while it was being read: it had ", size(), " bytes when it was opened and has ",
           facts.st_size, " now, written to at ", facts.st_mtim.tv_sec, " s of Unix time, before at ", stamp_.changed_s,
           "\n  fix: put the file back as it was and start again; write new data under another name and rename it"));
}

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() != std::filesystem::file_type::not_found;
}

}  // namespace trireme::files
