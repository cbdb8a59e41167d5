#pragma once
// For tests of launchers: runs one with small shell programs as ranks, and captures all output.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/runtime/launcher/launch.hpp"
#include "trireme/runtime/launcher/rank_process.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {

struct LaunchResult {
  int code;
  std::string err;       // stderr of the launcher
  std::string out;       // stdout of rank 0, as forwarded
  std::string rank_err;  // stderr of rank 0, as forwarded
  double seconds;
};

/// Each rank runs `script` in sh.
class LaunchBench {
 public:
  explicit LaunchBench(const std::string& script, int ranks = 2) {
    options.program = {"sh", "-c", script};
    options.ranks = ranks;
    options.master_port = 29'500;
    options.log_folder = (folder / "ranks").string();
    options.variables = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}, {"DIR", folder.path().string()}};
  }

  LaunchResult run() {
    const OwnedFd out(open_file("out")), err(open_file("err"));
    options.out_fd = out.get();
    options.err_fd = err.get();
    std::ostringstream said;
    const auto start = std::chrono::steady_clock::now();
    const int code = launcher::launch(options, said).code;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {code, said.str(), file_contents(folder / "out"), file_contents(folder / "err"), seconds};
  }

  std::string log(int rank) const { return file_contents(folder.path() / "ranks" / launcher::log_name(rank)); }

  TempFolder folder;
  launcher::LaunchOptions options;

 private:
  int open_file(const char* name) const {
    return ::open((folder / name).c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  }
};

inline bool wait_until(const std::function<bool()>& done, std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

/// Reads a number that a rank writes into a file, once it is complete.
inline int number_in(const std::filesystem::path& file) {
  int number = -1;
  wait_until([&] {
    std::ifstream in(file);
    std::string line;
    if (!std::getline(in, line) || in.eof()) return false;
    number = std::stoi(line);
    return true;
  });
  return number;
}

/// Zombies do not count: init may be slow to reap orphans.
inline bool process_lives(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(in, line)) return false;
  const char state = line[line.rfind(')') + 2];
  return state != 'Z' && state != 'X';
}

}  // namespace trireme
