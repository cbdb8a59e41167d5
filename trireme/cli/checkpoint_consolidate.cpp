// `trireme checkpoint consolidate CHECKPOINT OUT`
#include <filesystem>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/checkpoint/reshape/consolidate.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/data.hpp"
#include "trireme/cli/progress_line.hpp"

namespace trireme::cli {
namespace {

constexpr double kBytesOfGb = 1e9;

std::string written_text(const std::string& folder, const checkpoint::Consolidated::Written& written,
                         const char* what) {
  return text("wrote ", folder, ": ", thousands(static_cast<std::int64_t>(written.tensors)), " ", what,
              written.tensors == 1 ? "" : "s", ", ", human_bytes(static_cast<double>(written.bytes)), "\n");
}

void consolidate_now(const CheckpointConsolidateCommand& command, Console& console) {
  require<ConfigError>(command.max_shard_gb > 0 && command.max_shard_gb < 1e9, "--max-shard-gb ", command.max_shard_gb,
                       ": must be above 0, in units of 1e9 bytes");
  const MeantCheckpoint meant = meant_checkpoint(command.path);
  warn_of_others(meant, console.err);
  const checkpoint::Reader source(meant.path);
  ProgressLine line(console.err, console.err_terminal.tty, console.err_terminal.width, "consolidating");
  const auto progress = [&line](std::uint64_t done, std::uint64_t of) {
    if (StopSignals::received() != 0) throw Interrupted("interrupted; nothing was written");
    line.show({.taken = done, .of = of, .read_bytes = done});
  };
  const checkpoint::Consolidated made = checkpoint::consolidate(
      source, command.output,
      {.optimizer = command.optimizer,
       .max_shard_bytes = static_cast<std::uint64_t>(std::max(1.0, command.max_shard_gb * kBytesOfGb)),
       .progress = progress});
  line.clear();
  console.out << "read  " << meant.path.string() << ": " << layout_text(source.manifest()) << "\n"
              << written_text(command.output, made.weights, "tensor");
  if (command.optimizer)
    console.out << written_text((std::filesystem::path(command.output) / "optimizer").string(), made.states, "state");
}

}  // namespace

int run_checkpoint_consolidate(const CheckpointConsolidateCommand& command, Console& console) {
  return until_stopped(console, [&] { consolidate_now(command, console); });
}

}  // namespace trireme::cli
