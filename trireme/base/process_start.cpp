#include "trireme/base/process_start.hpp"

#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

namespace trireme {

void prepare_process() {
  int fd = ::open("/dev/null", O_RDWR);  // the lowest number that is free
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd >= 0) ::close(fd);

  std::signal(SIGXFSZ, SIG_IGN);

  // Read by oneDNN when it compiles its first kernel. ONEDNN_JIT_PROFILE would win, and is left to the user.
  ::setenv("DNNL_JIT_PROFILE", "0", /*overwrite=*/0);
}

}  // namespace trireme
