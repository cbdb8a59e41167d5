#pragma once
// The schedules that Trireme knows. Each function gives the program of one rank; make_schedule gives them all.
// docs/parallelism/pipeline.md says what each of them costs.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/schedule/action.hpp"
#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

// All take any number of microbatches >= 1.

/// Every forward, then every backward (GPipe).
Program all_forward_all_backward(int rank, int ranks, int microbatches);
/// One forward, one backward, after ranks - 1 - rank forwards to fill the pipeline.
Program one_f_one_b(int rank, int ranks, int microbatches);
/// 1F1B over `virtual_stages` chunks a rank; chunk c lives on rank c % ranks. One virtual stage is 1F1B itself.
Program interleaved(int rank, int ranks, int microbatches, int virtual_stages);
/// ZB-H1: 1F1B with the backward cut in two; rank r puts r weight gradients off and fills the last bubble with them.
Program zb1p(int rank, int ranks, int microbatches);

// Two chunks a rank on a V: chunk c and chunk 2 ranks - 1 - c are on rank c, so that the loss is where the embedding
// is.

/// ZB-V: no bubble when forward, input gradient and weight gradient cost the same.
Program zbv(int rank, int ranks, int microbatches);
/// DualPipeV: pairs a forward of one chunk with a backward of the other, so that each hides the other's communication.
Program dualpipe_v(int rank, int ranks, int microbatches);

/// The names that the config takes, without aliases: afab, 1f1b, interleaved-1f1b, zb1p, zbv, dualpipe-v.
const std::vector<std::string>& schedule_names();
/// The name itself, or the one it is an alias of (gpipe, zero-bubble); empty when unknown.
std::string canonical_schedule(std::string_view name);
/// Chunks a rank that the schedule has when the config asks for `virtual_stages`.
int chunks_per_rank(std::string_view name, int virtual_stages);

/// Throws ConfigError for an unknown name or a number below 1.
Schedule make_schedule(std::string_view name, int ranks, int microbatches, int virtual_stages = 1);

}  // namespace trireme::schedule
