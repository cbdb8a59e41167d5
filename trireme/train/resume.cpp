#include "trireme/train/resume.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/reader.hpp"
#include "trireme/comm/group_text.hpp"
#include "trireme/comm/time_limit.hpp"
#include "trireme/comm/wait_together.hpp"
#include "trireme/train/load_state.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Collective: what went wrong on the first rank that could not do it, or "". Ranks read different amounts, from
/// storage of different speed.
std::string failure_of(Group& control, bool& is_security, const std::function<void()>& action) {
  std::future<std::string> work = std::async(std::launch::async, [&]() -> std::string {
    try {
      action();
      return "";
    } catch (const CheckpointError& e) {
      return e.what();
    } catch (const SecurityError& e) {  // a symlink, perhaps: the checkpoint before it may be good
      is_security = true;
      return e.what();
    }
  });
  wait_together(control, work);
  return first_failure(control, work.get());
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

std::vector<fs::path> checkpoints_to_resume(const OwnFolder* own, const std::string& resume, World& world) {
  std::string lines;
  if (own != nullptr)
    for (const fs::path& path : own->to_resume_from(resume)) lines += path.string() + "\n";
  // Rank 0 may have waited for the lock of the folder, and for the disk.
  const TimeLimit limit(world, std::max(world.options().init_timeout_s, world.options().timeout_s));
  std::istringstream all(broadcast_text(world.control(), lines));
  std::vector<fs::path> out;
  for (std::string line; std::getline(all, line);) out.emplace_back(line);
  return out;
}

Resumed resume(Zero& zero, Mesh& mesh, const ResumeRequest& request, std::vector<std::string>& warnings) {
  // They have built their models, which takes some longer than others.
  const TimeLimit limit(mesh.world(),
                        std::max(mesh.world().options().init_timeout_s, mesh.world().options().timeout_s));
  Group& control = mesh.world().control();
  std::string failures;
  std::vector<fs::path> failed;
  bool is_security = false;
  for (const fs::path& path : request.candidates) {
    std::unique_ptr<checkpoint::Reader> reader;
    std::string failure =
        failure_of(control, is_security, [&] { reader = std::make_unique<checkpoint::Reader>(path); });
    if (failure.empty()) {
      if (no_rank_has_a_copy(zero)) reader->read_each_once();
      Resumed out{.path = path, .manifest = reader->manifest()};
      out.changes = changes_since(out.manifest, request.config, request.data, request.accepted);
      refuse(path, out.changes.refused);
      failure = failure_of(control, is_security, [&] {
        load_state(*reader, zero, {.states = !out.changes.new_optimizer});
        out.random = random_of(*reader, mesh.rank(), mesh.world().size());
      });
      if (failure.empty()) {
        out.damaged = std::move(failed);
        state_is_loaded(zero, out.changes.new_optimizer ? 0 : out.manifest.training.optimizer_steps);
        return out;
      }
    }
    failed.push_back(path);
    warnings.push_back(text(failure, "\n  the checkpoint before it is tried"));
    failures += text(failures.empty() ? "" : "\n  ", failure);
  }
  failures +=
      "\n  no other checkpoint is left\n  fix: checkpoint.resume = \"never\" starts a new run; trireme checkpoint "
      "verify says what is damaged";
  require<SecurityError>(!is_security, failures);
  throw CheckpointError(failures);
}

}  // namespace trireme
