#pragma once
// Continues a training from a checkpoint: which ones there are, which one is good, and what it restores.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/parallel/zero/zero.hpp"
#include "trireme/train/run/changes_since.hpp"
#include "trireme/train/run/own_folder.hpp"
#include "trireme/train/save/stall_watch.hpp"

namespace trireme {

/// Collective: own->to_resume_from(resume) of rank 0, on all ranks; `own` is null on the others.
std::vector<std::filesystem::path> checkpoints_to_resume(const OwnFolder* own, const std::string& resume, World& world);

struct ResumeRequest {
  std::vector<std::filesystem::path> candidates;  // newest first; the same on all ranks
  KeyValues config, data;                         // now: see changes_since()
  std::vector<std::string> accepted;              // checkpoint.accept_changes
  StallLimits stall{};                            // of the storage: beyond, the process ends with exit code 74
};

struct Resumed {
  std::filesystem::path path;
  checkpoint::Manifest manifest;
  Changes changes{};
  std::vector<std::filesystem::path> damaged{};  // candidates that were tried before, and could not be used
  // Of this rank; empty if the checkpoint is of another number of ranks:
  std::vector<std::uint8_t> random{};       // its generators
  std::vector<std::uint8_t> fp8_history{};  // also of another layout: then it does not fit
};

/// Collective. Sets weights and states from the first candidate that is complete and undamaged; `warnings` get why
/// others are not used. CheckpointError if none is left, and if the run has changed so that it would be another one.
Resumed resume(Zero& zero, Mesh& mesh, const ResumeRequest& request, std::vector<std::string>& warnings);

}  // namespace trireme
