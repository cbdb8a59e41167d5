#pragma once
// File operations that are counted: whether storage still answers can be seen from another thread.
#include <atomic>
#include <cstdint>

#include "trireme/files/fs.hpp"

namespace trireme::files {

class CountedFs final : public Fs {
 public:
  explicit CountedFs(Fs& fs) : fs_(fs) {}

  /// Operations that are over.
  std::uint64_t count() const { return count_; }

  int make_folder(const std::filesystem::path& folder) override { return counted(fs_.make_folder(folder)); }
  int create(const std::filesystem::path& file, bool direct, int& fd) override {
    return counted(fs_.create(file, direct, fd));
  }
  int write(int fd, std::uint64_t offset, std::span<const std::byte> bytes) override {
    return counted(fs_.write(fd, offset, bytes));
  }
  int truncate(int fd, std::uint64_t size) override { return counted(fs_.truncate(fd, size)); }
  int sync(int fd) override { return counted(fs_.sync(fd)); }
  int close(int fd) override { return counted(fs_.close(fd)); }
  int rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    return counted(fs_.rename(from, to));
  }
  int sync_folder(const std::filesystem::path& folder) override { return counted(fs_.sync_folder(folder)); }
  int remove_file(const std::filesystem::path& file) override { return counted(fs_.remove_file(file)); }
  int remove_folder(const std::filesystem::path& folder) override { return counted(fs_.remove_folder(folder)); }

 private:
  int counted(int result) {
    ++count_;
    return result;
  }

  Fs& fs_;
  std::atomic<std::uint64_t> count_ = 0;
};

}  // namespace trireme::files
