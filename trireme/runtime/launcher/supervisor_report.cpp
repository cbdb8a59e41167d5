#include "trireme/runtime/launcher/supervisor_report.hpp"

#include <cstddef>
#include <iomanip>

#include "trireme/base/error.hpp"
#include "trireme/runtime/launcher/signal_relay.hpp"

namespace trireme::launcher {
namespace {

std::string how_it_died(const ProcessExit& death) {
  const std::string who = text("(pid ", death.pid, ") ");
  if (death.signal == 0) return text(who, "exited with code ", death.code);
  return text(who, "was killed by signal ", death.signal, " (", signal_name(death.signal), ")");
}

std::string seconds_text(double seconds) { return text(std::fixed, std::setprecision(2), seconds, " s"); }

/// A code for bad input: the call that happened to be the last one is not the cause.
bool is_bad_input(int code) {
  for (const ExitCode input : {ExitCode::config, ExitCode::data, ExitCode::checkpoint, ExitCode::security})
    if (code == static_cast<int>(input)) return true;
  return false;
}

std::string failure_text(const SupervisorResult& end, const ProcessNames& names) {
  const auto failed = static_cast<std::size_t>(end.failed);
  const ProcessExit& death = end.deaths[failed];
  std::string report = text("error: ", names.each[failed], " ", how_it_died(death));
  if (!names.last_call.empty() && !(death.signal == 0 && is_bad_input(death.code))) report += ": " + names.last_call;
  report += "\n";
  if (!names.hint.empty()) report += text("  ", names.hint, "\n");
  if (!end.last_output.empty()) report += "  last output:\n";
  for (const std::string& line : end.last_output) report += text("  | ", line, "\n");
  if (end.stopped == 1) report += text("  the other ", names.one, " was stopped after ");
  if (end.stopped > 1) report += text("  the other ", end.stopped, " ", names.many, " were stopped after ");
  if (end.stopped > 0) report += seconds_text(end.stop_seconds) + "\n";
  if (!names.log_file.empty()) report += text("  logs: ", names.log_file, "\n");
  return report;
}

}  // namespace

LaunchEnd end_of(const SupervisorResult& end, const ProcessNames& names) {
  LaunchEnd told{.code = end.code, .stop_was_asked = end.stop_was_asked};
  if (const auto failed = static_cast<std::size_t>(end.failed); end.failed >= 0)
    told.failure = text(names.each[failed], " ", how_it_died(end.deaths[failed]));
  return told;
}

std::string report_of(const SupervisorResult& end, const ProcessNames& names) {
  std::string report;
  if (end.failed >= 0) {
    report = failure_text(end, names);
  } else if (end.stopped_from_above) {
    report = text("stopped by the launcher of the whole job: the ", names.many, " of this host ended within ",
                  seconds_text(end.stop_seconds), "\n");
  } else if (end.killed_by_user) {
    report = text("killed by a second ", signal_name(end.stop_signal), ", without saving: all ", names.many,
                  " ended within ", seconds_text(end.stop_seconds), "\n");
  } else if (end.stop_signal != 0) {
    report = text("stopped by ", signal_name(end.stop_signal), ": all ", names.many, " ended within ",
                  seconds_text(end.stop_seconds), "\n");
  } else if (end.code != 0) {
    report = text("stopped with code ", end.code, ", as the ", names.many, " themselves decided\n");
  }
  for (const int stuck : end.stuck) {
    const auto member = static_cast<std::size_t>(stuck);
    report += text("warning: ", names.each[member], " (pid ", end.deaths[member].pid,
                   ") is stuck inside the kernel: even SIGKILL did not end it\n");
  }
  return report;
}

}  // namespace trireme::launcher
