#include "trireme/base/temporary_name.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// ".tmp-HOST-"
std::string marker() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::error_code unknown;  // containers on one host may share its name, not its processes
  const std::string space = fs::read_symlink("/proc/self/ns/pid", unknown).string();
  std::array<char, 32> words{};
  std::snprintf(words.data(), words.size(), ".tmp-%08x-",
                static_cast<unsigned>(fnv1a(space, fnv1a(host.data())) & 0xffffffff));
  return words.data();
}

/// The process that a temporary name of this host belongs to.
std::optional<pid_t> owner_of(std::string_view name, const std::string& mark) {
  const std::size_t at = name.rfind(mark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(at + mark.size());
  pid_t pid = 0;
  int number = 0;
  const char* const end = rest.data() + rest.size();
  const auto [after_pid, bad_pid] = std::from_chars(rest.data(), end, pid);
  if (bad_pid != std::errc{} || pid <= 0 || after_pid == end || *after_pid != '-') return std::nullopt;
  const auto [after, bad] = std::from_chars(after_pid + 1, end, number);
  return bad == std::errc{} && after == end ? std::optional(pid) : std::nullopt;
}

bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

void remove_where_gone(const fs::path& folder, const std::string& prefix) {
  const std::string mark = marker();
  std::vector<fs::path> gone;
  std::error_code failed;
  for (auto entry = fs::directory_iterator(folder.empty() ? "." : folder, failed);
       !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    if (const auto pid = owner_of(name, mark); pid && is_gone(*pid)) gone.push_back(entry->path());
  }
  for (const fs::path& each : gone) fs::remove_all(each, failed);  // another user's: it stays
}

}  // namespace

fs::path temporary_name(const fs::path& path, int number) {
  return text(path.string(), marker(), ::getpid(), "-", number);
}

bool is_own_temporary(std::string_view name) { return owner_of(name, marker()) == ::getpid(); }

void remove_leftovers(const fs::path& path) {
  remove_where_gone(path.parent_path(), path.filename().string() + ".tmp-");
}

void remove_leftovers_in(const fs::path& folder) {
  if (!folder.empty()) remove_where_gone(folder, "");
}

}  // namespace trireme
