#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/command_group.hpp"
#include "trireme/files/random_reader.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::cli {
namespace {

constexpr const char* kWhich = "a checkpoint, or the folder of a run: then its newest valid checkpoint";

/// What an error says, without the fix, as one line.
std::string in_one_line(const std::string& message) {
  std::string out = message.substr(0, message.find("\n  fix: "));
  for (std::size_t at = 0; (at = out.find("\n  ", at)) != std::string::npos;) out.replace(at, 3, "; ");
  return files::shown_text(out);
}

void add_inspect_checkpoint(CLI::App& group, const Chosen& chosen) {
  auto command = std::make_shared<CheckpointInspectCommand>();
  CLI::App* cmd = group.add_subcommand("inspect", "Show what is in a checkpoint");
  cmd->add_option("path", command->path, kWhich)->required();
  cmd->add_flag("--tensors", command->tensors, "list every tensor; default: similar layers in one line");
  cmd->add_flag("--json", command->json, "print everything as one JSON object");
  cmd->footer("Example:\n  trireme checkpoint inspect runs/latest");
  runs(*cmd, chosen, command, run_checkpoint_inspect);
}

void add_verify_checkpoint(CLI::App& group, const Chosen& chosen) {
  auto command = std::make_shared<CheckpointVerifyCommand>();
  CLI::App* cmd = group.add_subcommand("verify", "Read all of a checkpoint and compare every hash");
  cmd->add_option("path", command->path, kWhich)->required();
  cmd->add_option("--workers", command->workers, "threads; default: all cores, at most 8");
  cmd->add_flag("-q,--quiet", command->quiet, "print only the faults");
  cmd->footer(
      "Exits with 66, and lists every fault, if there is one.\n\nExample:\n  trireme checkpoint verify runs/latest");
  runs(*cmd, chosen, command, run_checkpoint_verify);
}

void add_consolidate_checkpoint(CLI::App& group, const Chosen& chosen) {
  auto command = std::make_shared<CheckpointConsolidateCommand>();
  CLI::App* cmd = group.add_subcommand("consolidate", "Write whole tensors as safetensors files");
  cmd->add_option("path", command->path, kWhich)->required();
  cmd->add_option("output", command->output, "new folder to write")->required();
  cmd->add_flag("--optimizer", command->optimizer, "also the states of the optimizer, in OUT/optimizer");
  cmd->add_option("--max-shard-gb", command->max_shard_gb, "1e9 bytes of tensors that a file may hold")
      ->capture_default_str();
  cmd->footer(
      "Parameters and buffers keep their names and dtypes. For a Hugging Face folder of a run: trireme convert.\n\n"
      "Example:\n  trireme checkpoint consolidate checkpoints weights");
  runs(*cmd, chosen, command, run_checkpoint_consolidate);
}

}  // namespace

MeantCheckpoint meant_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path named = path.has_filename() ? path : path.parent_path();
  require<CheckpointError>(std::filesystem::exists(std::filesystem::symlink_status(named)), named.string(),
                           ": does not exist\n  fix: name a checkpoint, or the folder of a run");
  const bool is_one =
      checkpoint::step_in_name(named.filename().string()) || files::is_there(named / checkpoint::kManifestName);
  if (is_one) return {.path = named};
  const std::filesystem::path inner = named / "checkpoints", folder = files::is_there(inner) ? inner : named;
  MeantCheckpoint out;
  std::string all;
  for (const checkpoint::FoundCheckpoint& found : checkpoint::checkpoints_in(folder)) {
    const std::string why = in_one_line(checkpoint::why_not_valid(found.path));
    if (why.empty() && out.path.empty()) {
      out.path = found.path;
    } else {
      out.others.push_back({found.path.filename().string(), why});
    }
    all += text("\n  ", why);
  }
  require<CheckpointError>(!out.path.empty(), folder.string(),
                           all.empty() ? ": has no checkpoint" : ": has no valid checkpoint", all,
                           "\n  fix: name a checkpoint, or the folder of a run that has saved one");
  return out;
}

void warn_of_others(const MeantCheckpoint& meant, std::ostream& err) {
  for (const MeantCheckpoint::Other& other : meant.others)
    if (!other.why_not.empty()) err << "warning: not valid, and not used: " << other.why_not << "\n";
}

std::filesystem::path meant_model(const std::filesystem::path& path, std::ostream& err) {
  std::error_code failed;
  const bool is_of_run =
      std::filesystem::is_directory(path, failed) &&
      (!checkpoint::checkpoints_in(path / "checkpoints").empty() || !checkpoint::checkpoints_in(path).empty());
  if (!is_of_run) return path;
  const MeantCheckpoint meant = meant_checkpoint(path);
  warn_of_others(meant, err);
  return meant.path;
}

std::string others_text(const MeantCheckpoint& meant) {
  std::string valid, out;
  for (const MeantCheckpoint::Other& other : meant.others) {
    if (other.why_not.empty())
      valid += (valid.empty() ? "" : ", ") + other.name;
    else
      out += text("not valid    ", other.why_not, "\n");
  }
  return valid.empty() ? out : text(out, "older        ", valid, "\n");
}

void add_checkpoint(CLI::App& app, const Chosen& chosen) {
  CLI::App* group = app.add_subcommand("checkpoint", "Inspect, verify and consolidate checkpoints");
  group->require_subcommand(1);
  add_inspect_checkpoint(*group, chosen);
  add_verify_checkpoint(*group, chosen);
  add_consolidate_checkpoint(*group, chosen);
}

}  // namespace trireme::cli
