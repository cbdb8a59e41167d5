#include "trireme/schedule/dependencies.hpp"

#include <algorithm>

namespace trireme::schedule {
namespace {

/// The inputs of an action from other actions. A gradient may come from B or from I.
std::vector<std::vector<Action>> inputs_of(const Schedule& schedule, const Action& action) {
  const auto gradient = [&](int chunk) {
    return std::vector<Action>{{ActionKind::B, chunk, action.microbatch}, {ActionKind::I, chunk, action.microbatch}};
  };
  std::vector<std::vector<Action>> inputs;
  if (action.op == ActionKind::W) return {{{ActionKind::I, action.chunk, action.microbatch}}};
  if (action.op != ActionKind::F) inputs.push_back({{ActionKind::F, action.chunk, action.microbatch}});
  for (const Edge& edge : schedule.edges) {
    if (action.op == ActionKind::F && edge.to == action.chunk)
      inputs.push_back({{ActionKind::F, edge.from, action.microbatch}});
    if (action.op != ActionKind::F && edge.from == action.chunk) inputs.push_back(gradient(edge.to));
  }
  return inputs;
}

}  // namespace

std::map<Action, int> last_awaited(const Schedule& schedule, int rank) {
  std::map<Action, int> awaited;    // the result
  std::map<Action, int> with_self;  // the same, counting the action itself if it is one of `rank`
  std::vector<std::size_t> next(schedule.programs.size());
  const auto try_next = [&](std::size_t r) {
    const Program& program = schedule.programs[r];
    if (next[r] == program.size()) return false;
    const Action& action = program[next[r]];
    int last = next[r] > 0 ? with_self.at(program[next[r] - 1]) : -1;
    for (const std::vector<Action>& alternatives : inputs_of(schedule, action)) {
      const auto found = std::ranges::find_if(alternatives, [&](const Action& a) { return with_self.contains(a); });
      if (found == alternatives.end()) return false;
      last = std::max(last, with_self.at(*found));
    }
    awaited[action] = last;
    with_self[action] = static_cast<int>(r) == rank ? static_cast<int>(next[r]) : last;
    ++next[r];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t r = 0; r < schedule.programs.size(); ++r)
      while (try_next(r)) moved = true;
  }
  return awaited;
}

}  // namespace trireme::schedule
