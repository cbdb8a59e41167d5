#include "trireme/base/process_start.hpp"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme {

void prepare_process() {
  int fd = ::open("/dev/null", O_RDWR);  // the lowest number that is free
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd >= 0) ::close(fd);

  std::signal(SIGXFSZ, SIG_IGN);

  // Read by oneDNN when it compiles its first kernel. ONEDNN_JIT_PROFILE would win, and is left to the user.
  ::setenv("DNNL_JIT_PROFILE", "0", /*overwrite=*/0);
}

void ignore_broken_pipes() {
  struct sigaction action{};
  if (::sigaction(SIGPIPE, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

std::string process_start_ticks(pid_t pid) {
  std::ifstream in(text("/proc/", pid, "/stat"));
  std::string line;
  std::getline(in, line);
  const std::size_t name_end = line.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return "";
  std::istringstream fields(line.substr(name_end + 1));
  std::string word;
  std::string state;
  for (int field = 3; field <= 22 && fields >> word; ++field)
    if (field == 3) state = word;
  return state == "Z" || state == "X" ? "" : word;
}

}  // namespace trireme
