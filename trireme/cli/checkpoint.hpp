#pragma once
// The `trireme checkpoint ...` commands: their options (checkpoint_options.cpp) and their implementation
// (checkpoint_inspect.cpp, checkpoint_verify.cpp, checkpoint_consolidate.cpp).
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/cli/commands.hpp"

namespace CLI {
class App;
}

namespace trireme::cli {

/// The checkpoint that a path means.
struct MeantCheckpoint {
  std::filesystem::path path;
  struct Other {
    std::string name;
    std::string why_not;  // "": it is valid, and older
  };
  std::vector<Other> others{};  // newest first; none if the path is the checkpoint itself
};
/// `path`: a checkpoint; or a run's folder, or its folder `checkpoints`: then the newest valid one in it.
/// CheckpointError if there is none, with what is wrong with each.
MeantCheckpoint meant_checkpoint(const std::filesystem::path& path);
/// A warning for each of the others that is not valid.
void warn_of_others(const MeantCheckpoint& meant, std::ostream& err);
/// The same, but a path that is neither, such as a Hugging Face folder, is what is meant. Warns of the others that are
/// not valid.
std::filesystem::path meant_model(const std::filesystem::path& path, std::ostream& err);
/// A line for each of the others that are not valid, and one for those that are; "" if there are none.
std::string others_text(const MeantCheckpoint& meant);

/// "4 ranks: dp 2 × tp 2 · zero 1"
std::string layout_text(const checkpoint::Manifest& manifest);

struct CheckpointInspectCommand {
  std::string path;
  bool tensors = false, json = false;
};
int run_checkpoint_inspect(const CheckpointInspectCommand& command, Console& console);

struct CheckpointVerifyCommand {
  std::string path;
  bool quiet = false;
  int workers = 0;  // threads; 0: by the number of cores
};
int run_checkpoint_verify(const CheckpointVerifyCommand& command, Console& console);

struct CheckpointConsolidateCommand {
  std::string path, output;
  bool optimizer = false;
  double max_shard_gb = 5;  // as transformers does
};
int run_checkpoint_consolidate(const CheckpointConsolidateCommand& command, Console& console);

/// Adds `checkpoint` and its subcommands; `chosen` receives the command to run.
void add_checkpoint(CLI::App& app, const std::function<void(std::function<int(Console&)>)>& chosen);

}  // namespace trireme::cli
