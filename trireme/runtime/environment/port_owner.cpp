#include "trireme/runtime/environment/port_owner.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// The inodes of the sockets that listen on `port`, from a kernel table: "sl local rem st ... inode".
void add_listeners(const char* table, int port, std::set<std::string>& inodes) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
    words >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
    const std::size_t colon = local.rfind(':');
    if (state != "0A" || colon == std::string::npos) continue;
    int number = 0;
    std::from_chars(local.data() + colon + 1, local.data() + local.size(), number, 16);
    if (number == port) inodes.insert("socket:[" + inode + "]");
  }
}

}  // namespace

std::string port_owner(int port) {
  namespace fs = std::filesystem;
  std::set<std::string> inodes;
  add_listeners("/proc/net/tcp", port, inodes);
  add_listeners("/proc/net/tcp6", port, inodes);
  if (inodes.empty()) return "";
  std::error_code skip;  // other users' processes are not accessible
  for (const auto& process : fs::directory_iterator("/proc", skip)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code no_access;
    for (const auto& fd : fs::directory_iterator(process.path() / "fd", no_access)) {
      std::error_code gone;
      if (!inodes.contains(fs::read_symlink(fd.path(), gone).string())) continue;
      std::string name;
      std::ifstream comm(process.path() / "comm");
      std::getline(comm, name);
      return text(name, " (pid ", pid, ")");
    }
  }
  return "another process";
}

std::string first_line(const std::string& words) { return words.substr(0, words.find('\n')); }

}  // namespace trireme
