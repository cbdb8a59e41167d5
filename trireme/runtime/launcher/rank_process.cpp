#include "trireme/runtime/launcher/rank_process.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme::launcher {
namespace {

[[noreturn]] void cannot_start(const std::string& program, int error) {
  std::error_code ignored;
  const bool half_there =
      error == ENOENT && program.find('/') != std::string::npos && std::filesystem::exists(program, ignored);
  throw ConfigError(text("cannot start ", program, ": ", errno_text(error),
                         half_there ? " (of the interpreter or loader that it names)" : ""));
}

bool is_program(const std::string& path) {
  struct stat facts{};
  return ::stat(path.c_str(), &facts) == 0 && S_ISREG(facts.st_mode);
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (std::string& word : words) all.push_back(word.data());
  all.push_back(nullptr);
  return all;
}

/// Everything that the child needs, prepared before the fork. Note [After fork]
struct ChildWords {
  std::vector<std::string> argv, shell_argv, environment;
  std::vector<char*> argv_pointers, shell_pointers, environment_pointers;

  explicit ChildWords(const ProcessPlan& plan) : argv(plan.argv), shell_argv{"sh", plan.path} {
    for (std::size_t i = 1; i < argv.size(); ++i) shell_argv.push_back(argv[i]);
    for (const auto& [name, value] : plan.variables) environment.push_back(name + "=" + value);
    argv_pointers = pointers(argv);
    shell_pointers = pointers(shell_argv);
    environment_pointers = pointers(environment);
  }
  ChildWords(const ChildWords&) = delete;
  ChildWords& operator=(const ChildWords&) = delete;
};

// Note [After fork]
// Another thread may have held any lock at the time of the fork, including malloc's. So until exec the child only makes
// system calls and only accesses memory that was filled before.

void close_all_on_exec() {
  if (::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  const long most = ::sysconf(_SC_OPEN_MAX);  // old kernels
  for (int fd = 3; fd < (most > 0 && most < 65'536 ? most : 65'536); ++fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
}

/// The child must not run the parent's signal handlers before exec. Ignored signals stay ignored (nohup), except those
/// that a rank needs and those that we ignore ourselves (prepare_process).
void default_signals() {
  struct sigaction action{};
  for (int signal = 1; signal < NSIG; ++signal) {
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN && signal != SIGPIPE && signal != SIGCHLD && signal != SIGXFSZ) continue;
    action = {};
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
}

bool put_descriptors(const ProcessPlan& plan) {
  const int input = plan.stdin_fd >= 0 ? plan.stdin_fd : ::open("/dev/null", O_RDONLY);
  if (input < 0 || (input != STDIN_FILENO && ::dup2(input, STDIN_FILENO) < 0)) return false;
  if (plan.stdout_fd >= 0 && ::dup2(plan.stdout_fd, STDOUT_FILENO) < 0) return false;
  if (plan.stderr_fd >= 0 && ::dup2(plan.stderr_fd, STDERR_FILENO) < 0) return false;
  close_all_on_exec();
  for (const int fd : plan.keep)
    if (::fcntl(fd, F_SETFD, 0) != 0) return false;
  return true;
}

[[noreturn]] void run_child(const ProcessPlan& plan, ChildWords& words, pid_t parent, int error_fd,
                            const sigset_t& mask) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // the parent died before the line above
  default_signals();
  if (put_descriptors(plan)) {
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::execve(plan.path.c_str(), words.argv_pointers.data(), words.environment_pointers.data());
    if (errno == ENOEXEC)  // a script without #!, which a shell would also run
      ::execve("/bin/sh", words.shell_pointers.data(), words.environment_pointers.data());
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(error_fd, &error, sizeof error);
  ::_exit(127);
}

/// Forks with every signal blocked: the child must not run our handlers.
pid_t fork_child(const ProcessPlan& plan, ChildWords& words, int error_fd, const sigset_t& mask) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) run_child(plan, words, parent, error_fd, mask);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) cannot_start(plan.argv[0], error);
  return pid;
}

}  // namespace

OwnedFd above_stdio(OwnedFd fd, const char* what) {
  if (fd && fd.get() <= STDERR_FILENO) fd = OwnedFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  require<ConfigError>(static_cast<bool>(fd), "no descriptor for ", what, ": ", errno_text(errno));
  return fd;
}

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  require<ConfigError>(::pipe2(ends, O_CLOEXEC) == 0, "no descriptors for a pipe: ", errno_text(errno));
  OwnedFd read(ends[0]), write(ends[1]);
  return {above_stdio(std::move(read), "a pipe"), above_stdio(std::move(write), "a pipe")};
}

std::string find_program(const std::string& program, const std::string& path) {
  if (program.find('/') != std::string::npos) return program;
  const std::string folders = path.empty() ? "/usr/local/bin:/usr/bin:/bin" : path;
  int error = ENOENT;
  for (std::size_t begin = 0; begin <= folders.size() && !program.empty();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder = folders.substr(begin, end - begin);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
    if (is_program(candidate)) {
      if (::access(candidate.c_str(), X_OK) == 0) return candidate;
      error = EACCES;
    }
    begin = end + 1;
  }
  cannot_start(program, error);
}

pid_t start_process(const ProcessPlan& plan, const sigset_t& mask) {
  ChildWords words(plan);
  Pipe failure = make_pipe();
  const pid_t pid = fork_child(plan, words, failure.write.get(), mask);
  failure.write.reset();
  int error = 0;
  ssize_t size = 0;
  do size = ::read(failure.read.get(), &error, sizeof error);
  while (size < 0 && errno == EINTR);
  if (size != sizeof error) return pid;  // EOF: the exec succeeded
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  cannot_start(plan.argv[0], error);
}

}  // namespace trireme::launcher
