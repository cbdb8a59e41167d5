#include "trireme/comm/mesh.hpp"

#include <numeric>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

AxisSet all_axes(const Grid& grid) {
  AxisSet axes;
  for (const auto& [axis, degree] : grid.axes()) axes = axes | axis;
  return axes;
}

/// "dp-cp": also part of the key by which ranks find each other.
std::string name_of(AxisSet axes) {
  std::string joined;
  for (Axis axis : axes) joined += text(joined.empty() ? "" : "-", name(axis));
  return joined;
}

}  // namespace

Mesh::Mesh(Grid grid, World& world, std::vector<AxisSet> also, std::optional<Grid> experts)
    : params_(std::move(grid), std::move(experts)), world_(world) {
  const Grid& dense = this->grid();
  require<ConfigError>(dense.size() == world.size(), "the layout ", dense.str(), " needs ", dense.size(),
                       dense.size() == 1 ? " rank, " : " ranks, ", world.size(),
                       world.size() == 1 ? " was started" : " were started");
  world_.recorder().set_place(place());
  world_.control();
  std::vector<int> everybody(static_cast<std::size_t>(world.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  world_group_ = &make("world", everybody);
  self_ = &make("self", {world.rank()});

  std::vector<AxisSet> wanted;
  for (const auto& [axis, degree] : dense.axes()) wanted.emplace_back(axis);
  for (AxisSet axes : {kTokenAxes, AxisSet{Axis::cp, Axis::tp}, AxisSet{Axis::pp, Axis::tp}}) wanted.push_back(axes);
  wanted.push_back(all_axes(dense));
  wanted.insert(wanted.end(), also.begin(), also.end());
  for (AxisSet one : wanted) {
    const AxisSet axes = one & all_axes(dense);
    by_axes_[axes.str()] = &make(name_of(axes), dense.peers(world.rank(), axes));
  }
  if (params_.has_experts()) {
    for (AxisSet axes : {AxisSet{Axis::ep}, AxisSet{Axis::edp}, AxisSet{Axis::tp}, AxisSet{Axis::edp, Axis::ep},
                         AxisSet{Axis::ep, Axis::tp}})
      by_expert_axes_[axes.str()] =
          &make(axes == AxisSet{Axis::tp} ? "etp" : name_of(axes), this->experts().peers(world.rank(), axes));
  }
  warm_up();
}

Group& Mesh::make(const std::string& name, const std::vector<int>& ranks) {
  Group*& group = by_ranks_[ranks];
  if (group == nullptr) {
    groups_.push_back(world_.make_group(name, ranks));
    group = groups_.back().get();
  }
  return *group;
}

void Mesh::warm_up() {
  for (const auto& group : groups_) group->barrier().wait();
  end_step();  // clears the warm-up calls from the records of the first step
}

Group& Mesh::group(AxisSet axes) const {
  const AxisSet here = axes & all_axes(grid());
  if (here.empty()) return *self_;
  const auto at = by_axes_.find(here.str());
  require<ConfigError>(at != by_axes_.end(), "the mesh ", grid().str(), " has no group along {", axes.str(),
                       "}\n  fix: name it in `also` when the mesh is made");
  return *at->second;
}

Group& Mesh::expert_group(AxisSet axes) const {
  const AxisSet here = axes & all_axes(experts());
  if (here.empty()) return *self_;
  const auto at = by_expert_axes_.find(here.str());
  require<ConfigError>(at != by_expert_axes_.end(), "the mesh ", experts().str(), " has no experts' group along {",
                       axes.str(), "}");
  return *at->second;
}

Group& Mesh::group_of_ranks(const std::vector<int>& world_ranks) {
  const auto at = by_ranks_.find(world_ranks);
  if (at != by_ranks_.end()) return *at->second;
  Group& group = make("custom", world_ranks);
  group.barrier().wait();
  return group;
}

Group& Mesh::own_group(const std::string& name, const std::vector<int>& world_ranks) {
  Group*& group = own_groups_[{name, world_ranks}];
  if (group == nullptr) {
    groups_.push_back(world_.make_group(name, world_ranks));
    group = groups_.back().get();
    group->barrier().wait();
  }
  return *group;
}

StepCheck Mesh::start_step_check() {
  std::vector<Group*> groups;
  for (const auto& group : groups_) groups.push_back(group.get());
  return world_.start_step_check(groups);
}

std::string Mesh::place() const {
  std::string words;
  for (const auto& [axis, degree] : grid().axes())
    if (degree > 1) words += text(words.empty() ? "" : " ", name(axis), coord(axis));
  return words;
}

}  // namespace trireme
