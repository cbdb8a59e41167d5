// Preloaded by tests: storage with faults. Of files whose path contains FAULTY_PATH the first FAULTY_READS reads and
// FAULTY_WRITES writes, in the process with FAULTY_RANK as its RANK, do as FAULTY_HOW says:
//   error (default)  EIO
//   late             EIO after a second
//   hang             no answer before a signal, then EIO
//   slow             right, after 20 ms
// FAULTY_LOG: a file that gets a line per read of such a file, "RANK PATH BYTES", of all processes.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Empty: not one of the files.
std::string path_of(int fd) {
  static const std::string path = variable("FAULTY_PATH");
  if (path.empty()) return "";
  char target[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0 || std::strstr(target, path.c_str()) == nullptr)
    return "";
  return target;
}

void log_read(const std::string& path, ssize_t bytes) {
  static const std::string log = variable("FAULTY_LOG");
  if (log.empty() || bytes <= 0) return;
  static const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string line = variable("RANK") + " " + path + " " + std::to_string(bytes) + "\n";
  if (::write(fd, line.data(), line.size()) < 0) std::abort();
}

bool fails(std::atomic<int>& left) {
  static const bool is_rank = variable("RANK") == variable("FAULTY_RANK");
  static const std::string how = variable("FAULTY_HOW");
  if (!is_rank || left-- <= 0) return false;
  if (how == "hang") ::pause();
  if (how == "late") std::this_thread::sleep_for(std::chrono::seconds(1));
  if (how == "slow") std::this_thread::sleep_for(std::chrono::milliseconds(20));
  errno = EIO;
  return how != "slow";
}

std::atomic<int>& writes_left() {
  static std::atomic<int> left = std::atoi(variable("FAULTY_WRITES").c_str());
  return left;
}

}  // namespace

extern "C" ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  static std::atomic<int> left = std::atoi(variable("FAULTY_READS").c_str());
  const std::string path = path_of(fd);
  if (!path.empty() && fails(left)) return -1;
  static const auto real = reinterpret_cast<ssize_t (*)(int, void*, size_t, off_t)>(::dlsym(RTLD_NEXT, "pread"));
  const ssize_t done = real(fd, bytes, count, offset);
  if (!path.empty()) log_read(path, done);
  return done;
}

extern "C" ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  if (!path_of(fd).empty() && fails(writes_left())) return -1;
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t, off_t)>(::dlsym(RTLD_NEXT, "pwrite"));
  return real(fd, bytes, count, offset);
}

extern "C" ssize_t write(int fd, const void* bytes, size_t count) {
  if (!path_of(fd).empty() && fails(writes_left())) return -1;
  static const auto real = reinterpret_cast<ssize_t (*)(int, const void*, size_t)>(::dlsym(RTLD_NEXT, "write"));
  return real(fd, bytes, count);
}
