#pragma once
// Device mesh: the process groups of this rank along each axis of the grid.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/world.hpp"
#include "trireme/layout/param_layout.hpp"

namespace trireme {

/// The groups of this rank. They are created up front, in the same order on every rank, each has communicated before
/// the first use (connecting in the middle of other traffic can deadlock), and groups with the same ranks are shared.
class Mesh {
 public:
  /// `also`: additional sets of axes; every mesh has each single axis, kTokenAxes, {cp, tp}, {pp, tp} and all axes.
  /// With `experts`, another view of the same ranks (layout/grid.hpp), also the groups of that view.
  Mesh(Grid grid, World& world, std::vector<AxisSet> also = {}, std::optional<Grid> experts = std::nullopt);

  const Grid& grid() const { return params_.grid(View::dense); }
  /// Where parameters live on this mesh; comm/param_mesh.hpp answers with groups.
  const ParamLayout& params() const { return params_; }
  World& world() const { return world_; }
  int rank() const { return world_.rank(); }
  int coord(Axis axis) const { return grid().coord(rank(), axis); }

  /// The ranks that differ from this one only along `axes`; an axis that is not in the grid has degree one.
  Group& group(AxisSet axes) const;
  Group& world_group() const { return *world_group_; }
  /// The ranks that see other tokens of the batch.
  Group& token_group() const { return group(kTokenAxes); }
  /// In the expert view: ep, edp, tp, {edp, ep} or {ep, tp}.
  Group& expert_group(AxisSet axes) const;
  const Grid& experts() const { return params_.grid(View::expert); }
  Group& group(View view, AxisSet axes) const { return view == View::dense ? group(axes) : expert_group(axes); }

  /// A group of any world ranks in this order, including this one: an existing group, or a new one. All its ranks must
  /// call this, and ranks that share several groups in the same order.
  Group& group_of_ranks(const std::vector<int>& world_ranks);

  /// The group {from, to} for messages from one world rank to another, and for nothing else: with NCCL a message waits
  /// for everything that was started before it in its group. Both ranks must call this, and ranks that share several
  /// channels in the same order.
  Group& channel(int from, int to) { return own_group("channel", {from, to}); }
  /// The same for any use that must not wait for other traffic between these ranks. `name`: of the use.
  Group& own_group(const std::string& name, const std::vector<int>& world_ranks);

  /// Sets the current step and phase for all following records.
  void tag(const Tag& tag) const { world_.recorder().set_tag(tag); }
  /// Called between the gradients and the optimizer: throws if ranks did not make the same calls.
  void end_step() { start_step_check().finish(); }
  /// The same in two parts: following calls belong to the next step.
  StepCheck start_step_check();

  /// "pp0 dp1 cp0 tp1", without axes of degree one
  std::string place() const;

 private:
  Group& make(const std::string& name, const std::vector<int>& ranks);
  void warm_up();

  const ParamLayout params_;
  World& world_;
  std::vector<std::unique_ptr<Group>> groups_;  // in the order of creation
  std::map<std::vector<int>, Group*> by_ranks_;
  std::map<std::pair<std::string, std::vector<int>>, Group*> own_groups_;
  std::map<std::string, Group*> by_axes_, by_expert_axes_;  // "dp,cp"
  Group *world_group_ = nullptr, *self_ = nullptr;
};

}  // namespace trireme
