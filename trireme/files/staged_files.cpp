#include "trireme/files/staged_files.hpp"

#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/temporary_name.hpp"
#include "trireme/files/fs.hpp"

namespace trireme::files {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 18;

void remove_old(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return;
  throw DataError(
      text(path.string(), ": cannot be replaced: ", errno_text(errno), "\n  fix: write under another name"));
}

}  // namespace

void settle_folder(const std::filesystem::path& folder) { static_cast<void>(real_fs().sync_folder(folder)); }

StagedFile::StagedFile(std::filesystem::path path, std::string shown)
    : path_(std::move(path)), shown_(shown.empty() ? path_.string() : std::move(shown)) {
  remove_leftovers(path_);
  // O_EXCL: concurrent writers of the same name, in any process, get different temporary files.
  for (int number = 0; fd_ < 0; ++number) {
    temporary_ = temporary_name(path_, number);
    fd_ = ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    require<ConfigError>(fd_ >= 0 || errno == EEXIST, shown_, ": cannot be opened for writing: ", errno_text(errno));
  }
}

StagedFile::~StagedFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void StagedFile::append(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > kBufferBytes) flush();
  if (bytes.size() < kBufferBytes) {
    buffer_.append(bytes);
    return;
  }
  if (const int error = write_all(fd_, bytes); error != 0) throw_not_written(shown_, bytes.size(), error);
  written_ += bytes.size();
}

void StagedFile::flush() {
  if (const int error = write_all(fd_, buffer_); error != 0) throw_not_written(shown_, buffer_.size(), error);
  written_ += buffer_.size();
  buffer_.clear();
}

void StagedFile::overwrite(std::uint64_t offset, std::string_view bytes) {
  flush();
  const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
  if (done != static_cast<ssize_t>(bytes.size())) throw_not_written(shown_, bytes.size(), done < 0 ? errno : ENOSPC);
}

void StagedFile::read_back(std::uint64_t offset, std::span<std::byte> out) {
  flush();
  const ssize_t done = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
  require<DataError>(done == static_cast<ssize_t>(out.size()), shown_, ": cannot be read back at byte ", offset, ": ",
                     done < 0 ? errno_text(errno) : "it was truncated by another process",
                     "\n  fix: write to another disk");
}

void StagedFile::settle() {
  if (fd_ < 0) return;  // already settled
  flush();
  if (::fdatasync(fd_) != 0) throw_not_written(shown_, written_, errno);
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) throw_not_written(shown_, written_, errno);
}

void StagedFile::publish() {
  require<DataError>(::rename(temporary_.c_str(), path_.c_str()) == 0, shown_, ": cannot be renamed to from ",
                     temporary_.string(), ": ", errno_text(errno));
  temporary_.clear();
}

StagedFile& StagedFiles::add(const std::filesystem::path& path, const std::string& shown) {
  return *files_.emplace_back(std::make_unique<StagedFile>(path, shown));
}

void StagedFiles::settle() {
  for (const auto& file : files_) file->settle();
}

void StagedFiles::retract() {
  if (files_.size() > 1) remove_old(files_.back()->path());
}

void StagedFiles::publish(const std::function<void()>& before_step) {
  const auto step = [&](const auto& change) {
    if (before_step) before_step();
    change();
  };
  settle();
  if (files_.size() > 1) step([&] { remove_old(files_.back()->path()); });  // a single rename needs no key
  for (const auto& path : obsolete_) step([&] { remove_old(path); });
  for (const auto& file : files_) step([&] { file->publish(); });
  settle_folder(files_.back()->path().parent_path());
}

}  // namespace trireme::files
