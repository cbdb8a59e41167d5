#pragma once
// Generators of the pipeline schedules: each function returns the program of one rank, make_schedule those of all
// ranks.
// docs/parallelism/pipeline.md describes the cost of each schedule.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/schedule/action.hpp"
#include "trireme/schedule/schedule.hpp"

namespace trireme::schedule {

// All accept any number of microbatches >= 1.

/// GPipe: all forwards, then all backwards.
Program all_forward_all_backward(int rank, int ranks, int microbatches);
/// 1F1B: ranks - 1 - rank warm-up forwards, then one forward and one backward in turn.
Program one_f_one_b(int rank, int ranks, int microbatches);
/// 1F1B over `virtual_stages` chunks per rank; chunk c is on rank c % ranks. One virtual stage is plain 1F1B.
Program interleaved(int rank, int ranks, int microbatches, int virtual_stages);
/// ZB-H1: 1F1B with the backward split in two; rank r defers r weight gradients and fills the last bubble with them.
Program zb1p(int rank, int ranks, int microbatches);

// V-shaped, two chunks per rank: chunks c and 2 ranks - 1 - c are on rank c, so the loss is on the embedding's rank.

/// ZB-V: no bubble if forward, input gradient and weight gradient cost the same.
Program zbv(int rank, int ranks, int microbatches);
/// DualPipeV: pairs a forward of one chunk with a backward of the other, so that each hides the other's communication.
Program dualpipe_v(int rank, int ranks, int microbatches);

/// afab, 1f1b, interleaved-1f1b, zb1p, zbv, dualpipe-v in the config and on the command line.
enum class ScheduleKind { all_forward_all_backward, one_f_one_b, interleaved, zb1p, zbv, dualpipe_v };

/// The names in the order of the enum, without aliases.
const std::vector<std::string>& schedule_names();
/// By name or alias; ConfigError for an unknown name.
ScheduleKind parse_schedule_kind(std::string_view name);
/// Resolves aliases (gpipe, zero-bubble); empty for an unknown name.
std::string canonical_schedule(std::string_view name);
/// The schedule's number of chunks per rank when the config asks for `virtual_stages`.
int chunks_per_rank(ScheduleKind kind, int virtual_stages);

/// Throws ConfigError for a count below 1, or an unknown name.
Schedule make_schedule(ScheduleKind kind, int ranks, int microbatches, int virtual_stages = 1);
Schedule make_schedule(std::string_view name, int ranks, int microbatches, int virtual_stages = 1);

}  // namespace trireme::schedule
