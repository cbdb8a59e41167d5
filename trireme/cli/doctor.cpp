#include <fstream>
#include <thread>

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "trireme/base/human.hpp"
#include "trireme/base/table.hpp"
#include "trireme/cli/commands.hpp"

namespace trireme::cli {
namespace {

int usable_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                     : static_cast<int>(std::thread::hardware_concurrency());
}

/// The container's CPU limit, if there is one.
std::string core_limit() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  double quota = 0, period = 0;
  if (!(file >> quota >> period) || period <= 0) return "";  // "max": no limit
  return text(", limited to ", human_number(quota / period));
}

bool multiplies_bf16() {
#if defined(__aarch64__) && defined(HWCAP2_BF16)
  return (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
#elif defined(__x86_64__)
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with("flags"))
      return line.find("avx512_bf16") != std::string::npos || line.find("amx_bf16") != std::string::npos;
  return false;
#else
  return false;
#endif
}

/// The value of a line "Name:   123 kB" in /proc/meminfo, in bytes.
double meminfo(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return 1024 * std::strtod(line.c_str() + name.size() + 1, nullptr);
  return 0;
}

/// The container's memory limit, if there is one.
std::string memory_limit() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    double limit = 0;
    if (file >> limit && limit < meminfo("MemTotal")) return ", limited to " + human_bytes(limit);
  }
  return "";
}

std::string limit_text(rlim_t value, bool bytes) {
  if (value == RLIM_INFINITY) return "unlimited";
  return bytes ? human_bytes(static_cast<double>(value)) : thousands(static_cast<std::int64_t>(value));
}

TableRow ulimit_row(const char* name, int resource, bool bytes, rlim_t wanted, const char* why) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  const bool low = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < wanted;
  return {name, limit_text(limit.rlim_cur, bytes), low ? why : ""};
}

std::string free_space(const char* folder) {
  struct statvfs facts{};
  if (statvfs(folder, &facts) != 0) return "not there";
  const auto block = static_cast<double>(facts.f_frsize);
  return text(human_bytes(block * static_cast<double>(facts.f_bavail)), " free of ",
              human_bytes(block * static_cast<double>(facts.f_blocks)));
}

}  // namespace

ExitCode run_doctor(Console& console) {
  utsname system{};
  uname(&system);
  std::vector<TableRow> rows = {
      {"system", text(system.sysname, " ", system.release, " ", system.machine), ""},
      {"cores", text(usable_cores(), " usable", core_limit()),
       multiplies_bf16() ? "multiply bfloat16" : "no bfloat16 instructions: on the CPU dtype auto means float32"},
      {"memory", text(human_bytes(meminfo("MemTotal")), memory_limit()),
       text(human_bytes(meminfo("MemAvailable")), " available")},
      {"/dev/shm", free_space("/dev/shm"), ""},
  };
  for (TableRow& row : libtorch_report()) rows.push_back(std::move(row));
  rows.push_back(
      ulimit_row("open files", RLIMIT_NOFILE, false, 4096, "low: each connection takes one (ulimit -n 65536)"));
  rows.push_back(ulimit_row("locked memory", RLIMIT_MEMLOCK, true, 64 << 20, "low for RDMA (ulimit -l unlimited)"));
  rows.push_back(ulimit_row("core files", RLIMIT_CORE, true, 0, ""));
  rows.push_back(ulimit_row("processes", RLIMIT_NPROC, false, 4096, "low: each rank starts a few threads (ulimit -u)"));
  rows.push_back(ulimit_row("stack", RLIMIT_STACK, true, 8 << 20, "low (ulimit -s 8192)"));
  console.out << table({"", "found", "remark"}, rows);
  return ExitCode::done;
}

}  // namespace trireme::cli
