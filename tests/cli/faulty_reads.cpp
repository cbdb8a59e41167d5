// Preloaded by tests: reads of files whose path contains FAULTY_PATH fail with EIO, FAULTY_READS times, in the process
// with this RANK; with FAULTY_HANG they never return.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include <dlfcn.h>
#include <unistd.h>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool fails(int fd) {
  static const std::string path = variable("FAULTY_PATH");
  static const bool is_rank = variable("RANK") == variable("FAULTY_RANK");
  static std::atomic<int> left = std::atoi(variable("FAULTY_READS").c_str());
  if (path.empty() || !is_rank) return false;
  char target[4096] = "";
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (::readlink(link.c_str(), target, sizeof target - 1) < 0 || std::strstr(target, path.c_str()) == nullptr)
    return false;
  return left-- > 0;
}

}  // namespace

extern "C" ssize_t pread(int fd, void* bytes, size_t count, off_t offset) {
  if (fails(fd)) {
    if (!variable("FAULTY_HANG").empty()) ::pause();
    errno = EIO;
    return -1;
  }
  static const auto real = reinterpret_cast<ssize_t (*)(int, void*, size_t, off_t)>(::dlsym(RTLD_NEXT, "pread"));
  return real(fd, bytes, count, offset);
}
