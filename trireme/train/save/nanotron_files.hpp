#pragma once
// The files of a checkpoint in the layout that nanotron's documentation states: docs/checkpoints.md.
#include "trireme/checkpoint/format/block_pool.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/parallel/state/rank_files.hpp"
#include "trireme/parallel/zero/zero.hpp"

namespace trireme {

/// What lr_scheduler/ holds.
struct LrState {
  std::int64_t last_step = 0;
  double last_lr = 0, base_lr = 0;
};

/// optimizer/, lr_scheduler/ and random/ of this rank. `own`: rank_parts().
std::vector<RankFile> nanotron_rank_files(const Mesh& mesh, std::vector<SavedPart> parts, std::vector<SavedPart> own,
                                          std::int64_t optimizer_steps, const LrState& lr);

/// model/: one file per parameter, or per parameter and tensor-parallel rank that it is cut over; the ranks take turns.
/// Collective. Returns what this rank has written. If that fails, the others are not left alone: the exception
/// comes at the end.
checkpoint::Manifest write_nanotron_model(Zero& zero, Mesh& mesh, files::Fs& fs, checkpoint::BlockPool& pool,
                                          const checkpoint::SaveTarget& target);

/// optimizer/optimizer_config.json: its name and contents.
std::pair<std::string, std::string> nanotron_optimizer_config(const OptimizerConfig& optimizer, const Grid& grid);

}  // namespace trireme
