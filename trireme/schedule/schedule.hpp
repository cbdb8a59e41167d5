#pragma once
// A pipeline schedule: the program of every rank, and the rank of every chunk of the model.
#include <string>
#include <string_view>
#include <vector>

#include "trireme/schedule/action.hpp"

namespace trireme::schedule {

/// Activations go from one chunk to the other, gradients in the opposite direction.
struct Edge {
  int from;
  int to;
  bool operator==(const Edge&) const = default;
};

/// Plain data: it can be printed, parsed, replayed and drawn without ranks or a model.
struct Schedule {
  std::string name;
  int microbatches = 0;
  std::vector<int> rank_of_chunk;
  std::vector<Edge> edges;
  std::vector<Program> programs;  // indexed by pipeline rank

  int ranks() const { return static_cast<int>(programs.size()); }
  int chunks() const { return static_cast<int>(rank_of_chunk.size()); }
  int chunks_per_rank() const { return ranks() == 0 ? 0 : chunks() / ranks(); }
  bool operator==(const Schedule&) const = default;
};

/// The edges of a sequential model: 0 -> 1 -> 2 ...
std::vector<Edge> chain(int chunks);

/// A program without a pipeline: one rank, one chunk.
Schedule of_one_rank(Program program);
/// Forwards of any number of microbatches over the same chunks, one after the other: for validation.
Schedule forward_only(Schedule schedule, int microbatches);

/// A header line, a line with the rank of each chunk, the edges unless they are a chain, then one line per rank.
std::string str(const Schedule& schedule);
/// The inverse of `str`. Throws ConfigError that names the line.
Schedule parse_schedule(std::string_view text);

}  // namespace trireme::schedule
