#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "trireme/base/cgroup_facts.hpp"
#include "trireme/base/host_memory.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/base/table.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/cli/run_program.hpp"

namespace trireme::cli {
namespace {

/// The container's CPU limit, if there is one.
std::string core_limit() {
  const std::optional<double> limit = cgroup_cpu_limit();
  return limit ? text(", limited to ", human_number(*limit)) : "";
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

/// The container's memory limit, if there is one.
std::string memory_limit(const HostMemory& memory) {
  return memory.cgroup_limit ? ", the limit of the control group" : "";
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

/// The soft limit is raised when more is needed, so the hard one counts.
TableRow descriptors_row() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto ranks =
      (static_cast<std::int64_t>(limit.rlim_max) - static_cast<std::int64_t>(descriptors_of_rank(0))) / 2;
  const bool low = limit.rlim_max != RLIM_INFINITY && limit.rlim_max < 4096;
  return {"open files", text(limit_text(limit.rlim_cur, false), ", at most ", limit_text(limit.rlim_max, false)),
          low ? text("low: a rank needs 2 per rank of the run, plus 63: enough for ",
                     ranks > 0 ? thousands(ranks) : "no", " ranks (ulimit -n 65536)")
              : ""};
}

TableRow threads_row() {
  const std::optional<PidLimit> limit = cgroup_pid_limit();
  if (!limit) return {"threads", "unlimited", ""};
  return {"threads", text("pids.max ", thousands(limit->max), ", ", thousands(limit->current), " in use"),
          limit->max - limit->current < 256 ? "low: a rank starts about 12, and those of OMP_NUM_THREADS" : ""};
}

std::string free_space(const char* folder) {
  struct statvfs facts{};
  if (statvfs(folder, &facts) != 0) return "not there";
  const auto block = static_cast<double>(facts.f_frsize);
  return text(human_bytes(block * static_cast<double>(facts.f_bavail)), " free of ",
              human_bytes(block * static_cast<double>(facts.f_blocks)));
}

/// A number in a file of /sys; nullopt if there is none.
std::optional<double> number_in(const std::string& path) {
  std::ifstream in(path);
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

TableRow clock_row() {
  const std::string cpu = "/sys/devices/system/cpu/cpu0/cpufreq/";
  const std::optional<double> now = number_in(cpu + "scaling_cur_freq"), most = number_in(cpu + "cpuinfo_max_freq");
  std::ifstream in(cpu + "scaling_governor");
  std::string governor;
  in >> governor;
  if (!now || !most) return {"CPU clock", "not reported by this system", ""};
  return {"CPU clock", text(human_number(*now / 1e6), " GHz of ", human_number(*most / 1e6)),
          governor == "powersave" ? "powersave: slower than it could be (cpupower frequency-set -g performance)"
                                  : governor};
}

/// Two ranks of this host, which meet, connect and sum 4 MiB: what every training does first.
TableRow all_reduce_row() {
  std::error_code missing;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(missing);
  if (missing) return {"all-reduce", "not tried", text("no folder for temporary files: ", missing.message())};
  std::string folder = temporary / "trireme-doctor-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr)
    return {"all-reduce", "not tried", text(temporary.string(), ": ", errno_text(errno))};
  const std::filesystem::path made = folder, csv = made / "comm.csv", log = made / "log";
  const int code = run_own_program(
      {"bench", "comm", "-n", "2", "--ops", "all_reduce", "--sizes", "4M", "--backend", "gloo", "--csv", csv.string()},
      log);
  TableRow row{"all-reduce", "", ""};
  std::ifstream in(csv);
  std::string header, line;
  std::getline(in, header);
  if (code == 0 && std::getline(in, line)) {
    std::vector<std::string> cells;
    std::istringstream parts(line);
    for (std::string cell; std::getline(parts, cell, ',');) cells.push_back(cell);
    const auto value = [&](std::size_t i) { return std::strtod(cells.at(i).c_str(), nullptr); };
    row[1] = text("2 ranks, ", cells.at(7), ": 4 MiB in ", human_seconds(value(3)));
    row[2] = text(human_number(std::round(value(5) / 1e7) / 100), " GB/s over the bus");
  } else {
    std::ifstream said(log);
    std::string first;
    while (std::getline(said, first) && !first.starts_with("error")) continue;
    row[1] = text("failed with exit code ", code);
    row[2] = first;
  }
  std::error_code ignored;
  std::filesystem::remove_all(made, ignored);
  return row;
}

std::string as_json(const std::vector<TableRow>& rows) {
  std::string out = "{";
  for (const TableRow& row : rows)
    out += text(out.size() > 1 ? ",\n " : "", json_string(row[0]), R"(: {"found": )", json_string(row[1]),
                R"(, "remark": )", json_string(row[2]), "}");
  return out + "}";
}

}  // namespace

ExitCode run_doctor(const DoctorCommand& command, Console& console) {
  std::vector<TableRow> libtorch = libtorch_report(command.words);
  const HostMemory memory = host_memory();
  utsname system{};
  uname(&system);
  std::vector<TableRow> rows = {
      {"system", text(system.sysname, " ", system.release, " ", system.machine), ""},
      {"cores", text(usable_cores(), " usable", core_limit()),
       multiplies_bf16() ? "multiply bfloat16" : "no bfloat16 instructions: on the CPU dtype auto means float32"},
      {"memory", text(human_bytes(memory.total), memory_limit(memory)),
       text(human_bytes(memory.available), " available")},
      {"/dev/shm", free_space("/dev/shm"), ""},
  };
  rows.push_back(clock_row());
  for (TableRow& row : libtorch) rows.push_back(std::move(row));
  if (!command.quick) rows.push_back(all_reduce_row());
  rows.push_back(descriptors_row());
  rows.push_back(threads_row());
  rows.push_back(
      ulimit_row("file size", RLIMIT_FSIZE, true, RLIM_INFINITY, "no file may be larger (ulimit -f unlimited)"));
  rows.push_back(ulimit_row("address space", RLIMIT_AS, true, RLIM_INFINITY,
                            "libtorch reserves far more than it uses (ulimit -v unlimited)"));
  rows.push_back(ulimit_row("locked memory", RLIMIT_MEMLOCK, true, 64 << 20, "low for RDMA (ulimit -l unlimited)"));
  rows.push_back(ulimit_row("core files", RLIMIT_CORE, true, 0, ""));
  rows.push_back(ulimit_row("processes", RLIMIT_NPROC, false, 4096, "low: each rank starts a few threads (ulimit -u)"));
  rows.push_back(ulimit_row("stack", RLIMIT_STACK, true, 8 << 20, "low (ulimit -s 8192)"));
  if (command.json)
    console.out << as_json(rows) << "\n";
  else
    console.out << table({"", "found", "remark"}, rows);
  return ExitCode::done;
}

}  // namespace trireme::cli
