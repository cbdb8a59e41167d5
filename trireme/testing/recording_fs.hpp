#pragma once
// For tests: file systems that record every operation, or let one of them fail.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/files/fs.hpp"

namespace trireme {

enum class FsKind {
  make_folder,
  create,
  write,
  truncate,
  sync,
  close,
  rename,
  sync_folder,
  remove_file,
  remove_folder
};

struct FsOp {
  FsKind kind{};
  std::filesystem::path path{};  // of the file, for operations on a descriptor too: the name it was created with
  std::filesystem::path to{};    // rename
  std::uint64_t offset = 0;      // write; truncate: the size
  std::string data{};            // write
};

/// Forwards to `inner`, and knows the path of each open file.
class ForwardingFs : public files::Fs {
 public:
  explicit ForwardingFs(files::Fs& inner = files::real_fs()) : inner_(inner) {}

  int make_folder(const std::filesystem::path& folder) override {
    return run({.kind = FsKind::make_folder, .path = folder}, [&] { return inner_.make_folder(folder); });
  }
  int create(const std::filesystem::path& file, bool direct, int& fd) override {
    fd = -1;
    const int error = run({.kind = FsKind::create, .path = file}, [&] { return inner_.create(file, direct, fd); });
    if (error == 0) {
      const std::lock_guard lock(mutex_);
      open_[fd] = file;
    }
    return error;
  }
  int write(int fd, std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::string data(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return run({.kind = FsKind::write, .path = path_of(fd), .offset = offset, .data = std::move(data)},
               [&] { return inner_.write(fd, offset, bytes); });
  }
  int truncate(int fd, std::uint64_t size) override {
    return run({.kind = FsKind::truncate, .path = path_of(fd), .offset = size},
               [&] { return inner_.truncate(fd, size); });
  }
  int sync(int fd) override {
    return run({.kind = FsKind::sync, .path = path_of(fd)}, [&] { return inner_.sync(fd); });
  }
  int close(int fd) override {
    const int error = run({.kind = FsKind::close, .path = path_of(fd)}, [] { return 0; });
    const int closed = inner_.close(fd);  // even if it is to fail
    return error != 0 ? error : closed;
  }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return run({.kind = FsKind::rename, .path = from, .to = to}, [&] { return inner_.rename(from, to); });
  }
  int sync_folder(const std::filesystem::path& folder) override {
    return run({.kind = FsKind::sync_folder, .path = folder}, [&] { return inner_.sync_folder(folder); });
  }
  int remove_file(const std::filesystem::path& file) override {
    return run({.kind = FsKind::remove_file, .path = file}, [&] { return inner_.remove_file(file); });
  }
  int remove_folder(const std::filesystem::path& folder) override {
    return run({.kind = FsKind::remove_folder, .path = folder}, [&] { return inner_.remove_folder(folder); });
  }

 protected:
  /// Called for every operation; `forward` does it.
  virtual int done(FsOp op, const std::function<int()>& forward) = 0;
  files::Fs& inner() { return inner_; }
  int fd_of(const std::filesystem::path& path) const {
    for (const auto& [fd, each] : open_)
      if (each == path) return fd;
    return -1;
  }

 private:
  int run(FsOp op, const std::function<int()>& forward) { return done(std::move(op), forward); }
  std::filesystem::path path_of(int fd) {
    const std::lock_guard lock(mutex_);
    return open_[fd];
  }

  files::Fs& inner_;
  std::mutex mutex_;
  std::map<int, std::filesystem::path> open_;  // a number that is used again means the newer file
};

/// Logs the operations that succeeded.
class RecordingFs final : public ForwardingFs {
 public:
  using ForwardingFs::ForwardingFs;
  std::vector<FsOp> log{};

 private:
  int done(FsOp op, const std::function<int()>& forward) override {
    const int error = forward();
    const std::lock_guard lock(log_mutex_);
    if (error == 0) log.push_back(std::move(op));
    return error;
  }
  std::mutex log_mutex_;
};

/// Brings nothing to the disk: for tests that make thousands of files, on a machine whose disk is busy.
class UnsyncedFs final : public ForwardingFs {
 public:
  using ForwardingFs::ForwardingFs;

 private:
  int done(FsOp op, const std::function<int()>& forward) override {
    return op.kind == FsKind::sync || op.kind == FsKind::sync_folder ? 0 : forward();
  }
};

/// One call fails: the n-th (from 0) of a kind, or of any. The operation is not done, except for a `partial` write,
/// whose first half is, if there is only one thread.
struct FailingCall {
  int number = 0;
  int error = 0;
  std::optional<FsKind> kind{};
  bool partial = false;
};

class FailingFs final : public ForwardingFs {
 public:
  explicit FailingFs(FailingCall fails, files::Fs& inner = files::real_fs()) : ForwardingFs(inner), fails_(fails) {}

  bool has_failed() const { return failed_.has_value(); }
  const FsOp& failed() const { return *failed_; }

 private:
  int done(FsOp op, const std::function<int()>& forward) override {
    const bool counted = !fails_.kind || *fails_.kind == op.kind;
    if (!counted || calls_++ != fails_.number) return forward();
    if (fails_.partial && op.kind == FsKind::write)
      inner().write(fd_of(op.path), op.offset, std::as_bytes(std::span(op.data)).first(op.data.size() / 2));
    failed_ = std::move(op);
    return fails_.error;
  }

  FailingCall fails_;
  std::atomic<int> calls_ = 0;
  std::optional<FsOp> failed_;
};

}  // namespace trireme
