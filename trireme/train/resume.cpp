#include "trireme/train/resume.hpp"

#include <algorithm>
#include <functional>
#include <memory>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/commit.hpp"
#include "trireme/checkpoint/reader.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/train/load_state.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> paths_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const checkpoint::FoundCheckpoint& found : checkpoint::checkpoints_in(folder)) out.push_back(found.path);
  return out;
}

/// What went wrong, or "".
std::string failure_of(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const CheckpointError& e) {
    return e.what();
  }
}

void refuse(const fs::path& path, const std::vector<std::string>& changes) {
  if (changes.empty()) return;
  std::string listed;
  for (const std::string& change : changes) listed += "\n  " + change;
  throw CheckpointError(text(path.string(), ": the run has changed since, and would not be the same one", listed,
                             "\n  fix: change it back; or --checkpoint.resume never, for a new run; or accept it: "
                             "--checkpoint.accept_changes data, tokenizer, seed or optimizer"));
}

/// Ranks with the same shards read the same slices: those of one host share them in the page cache.
bool no_rank_has_a_copy(const Zero& zero) {
  return std::ranges::all_of(zero.parts(), [](const ZeroPart* p) { return p->partition.replicas().size() == 1; });
}

std::vector<std::uint8_t> random_of(const checkpoint::Reader& reader, int rank, int world) {
  const auto then = reader.manifest().layout.find("world");
  const checkpoint::StoredTensor* stored =
      checkpoint::find(reader.manifest(), text("rank-", rank), checkpoint::kRandom);
  if (stored == nullptr || then == reader.manifest().layout.end() || then->second != world) return {};
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(numel(stored->shape)));
  reader.read(*stored, {{0, stored->shape[0]}}, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

std::vector<fs::path> checkpoints_to_resume(const fs::path& folder, const std::string& resume) {
  std::vector<fs::path> found = paths_in(folder / "checkpoints");
  if (!found.empty() || resume == "auto" || resume == "never") return found;
  const fs::path given(resume);
  std::error_code error;
  require<CheckpointError>(fs::is_directory(given, error), "checkpoint.resume = \"", resume,
                           "\": no such folder\n  fix: auto, never, a checkpoint, or the folder of a run");
  if (fs::exists(given / checkpoint::kManifestName, error)) return {given};
  for (const fs::path& place : {given, given / "checkpoints"})
    if (found = paths_in(place); !found.empty()) return found;
  throw CheckpointError(text("checkpoint.resume = \"", resume, "\": no checkpoint there (a folder with ",
                             checkpoint::kManifestName,
                             "), and no folder step-N\n  fix: auto, never, a checkpoint, or "
                             "the folder of a run; weights of a Hugging Face folder: model.init = \"hf:FOLDER\""));
}

Resumed resume(Zero& zero, Mesh& mesh, const ResumeRequest& request, std::vector<std::string>& warnings) {
  // Ranks read different amounts, from storage of different speed.
  const TimeLimit limit(mesh.world(),
                        std::max(mesh.world().options().init_timeout_s, mesh.world().options().timeout_s));
  Group& control = mesh.world().control();
  std::string failures;
  for (const fs::path& path : request.candidates) {
    std::unique_ptr<checkpoint::Reader> reader;
    std::string failure =
        first_failure(control, failure_of([&] { reader = std::make_unique<checkpoint::Reader>(path); }));
    if (failure.empty()) {
      if (no_rank_has_a_copy(zero)) reader->read_each_once();
      Resumed out{.path = path, .manifest = reader->manifest()};
      out.changes = changes_since(out.manifest, request.config, request.data, request.accepted);
      refuse(path, out.changes.refused);
      failure = first_failure(control, failure_of([&] {
                                load_state(*reader, zero, {.states = !out.changes.new_optimizer});
                                out.random = random_of(*reader, mesh.rank(), mesh.world().size());
                              }));
      if (failure.empty()) {
        state_is_loaded(zero, out.changes.new_optimizer ? 0 : out.manifest.training.optimizer_steps);
        return out;
      }
    }
    warnings.push_back(text(failure, "\n  the checkpoint before it is tried"));
    failures += text(failures.empty() ? "" : "\n  ", failure);
  }
  throw CheckpointError(text(failures,
                             "\n  no other checkpoint is left\n  fix: checkpoint.resume = \"never\" starts a "
                             "new run; trireme checkpoint verify says what is damaged"));
}

}  // namespace trireme
