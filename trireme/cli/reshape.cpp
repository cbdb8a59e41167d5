// `trireme reshape CHECKPOINT --to tp=1,pp=2 -o OUT`
#include "trireme/checkpoint/reshape/reshape.hpp"

#include <algorithm>
#include <chrono>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/data.hpp"
#include "trireme/cli/progress_line.hpp"

namespace trireme::cli {
namespace {

void reshape_now(const ReshapeCommand& command, Console& console) {
  const checkpoint::LayoutChanges to = checkpoint::parse_layout_changes(command.to);
  const MeantCheckpoint meant = meant_checkpoint(command.checkpoint);
  for (const MeantCheckpoint::Other& other : meant.others)
    if (!other.why_not.empty()) console.err << "warning: not valid, and not used: " << other.why_not << "\n";
  const checkpoint::Reader source(meant.path);
  ProgressLine line(console.err, console.err_terminal.tty, console.err_terminal.width, "reshaping");
  const auto progress = [&line](std::uint64_t done, std::uint64_t of) {
    if (StopSignals::received() != 0) throw Interrupted("interrupted; nothing was written");
    line.show({.taken = done, .of = of, .read_bytes = done});
  };
  const checkpoint::Reshaped made = checkpoint::reshape(
      source, command.output,
      {.to = to, .program = command.version, .time = utc_text(std::chrono::system_clock::now()), .progress = progress});
  line.clear();
  console.out << "read  " << meant.path.string() << ": " << layout_text(source.manifest()) << "\n"
              << "wrote " << made.path.string() << ": " << layout_text(made.manifest) << ", "
              << human_bytes(static_cast<double>(total_bytes(made.manifest))) << "\n";
  if (made.dropped_random)
    console.out << "note  the states of libtorch's generators are left out: the number of ranks changes\n";
}

}  // namespace

int run_reshape(const ReshapeCommand& command, Console& console) {
  return until_stopped(console, [&] { reshape_now(command, console); });
}

}  // namespace trireme::cli
