#include "trireme/comm/mesh.hpp"

#include <mutex>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

at::Tensor one_of_rank(int rank) { return at::full({1}, static_cast<double>(rank), at::kDouble); }

std::vector<double> gathered(Group& group, int world_rank) {
  const at::Tensor all = group.all_gather(one_of_rank(world_rank)).wait();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

/// Every group of a mesh must have exactly the ranks given by the grid, in its order.
void expect_groups_of_the_grid(World& world) {
  const Grid grid = Grid::dense({.pp = 2, .dp = 2, .cp = 1, .tp = 2});
  Mesh mesh(grid, world);
  for (AxisSet axes :
       {AxisSet{Axis::tp}, AxisSet{Axis::dp}, AxisSet{Axis::pp}, AxisSet{Axis::cp}, AxisSet{Axis::dp, Axis::cp},
        AxisSet{Axis::pp, Axis::tp}, AxisSet{Axis::pp, Axis::dp, Axis::cp, Axis::tp}}) {
    Group& group = mesh.group(axes);
    EXPECT_EQ(group.world_ranks(), grid.peers(world.rank(), axes)) << axes.str();
    const std::vector<int> ranks = grid.peers(world.rank(), axes);
    EXPECT_EQ(gathered(group, world.rank()), std::vector<double>(ranks.begin(), ranks.end())) << axes.str();
  }
  EXPECT_EQ(&mesh.group({Axis::dp, Axis::cp}), &mesh.group(Axis::dp));  // cp = 1: the same ranks, the same group
  EXPECT_EQ(mesh.group(Axis::ep).size(), 1);
  mesh.end_step();
}

TEST(Mesh, HasTheGroupsOfItsGrid) { run_ranks(8, expect_groups_of_the_grid); }

TEST(Mesh, HasThemOverGlooToo) { run_gloo_threads(8, expect_groups_of_the_grid); }

TEST(Mesh, TakesOtherSetsOfAxesOnlyWhenTheyAreNamed) {
  run_ranks(8, [](World& world) {
    const Grid grid = Grid::dense({.pp = 2, .dp = 2, .cp = 1, .tp = 2});
    Mesh plain(grid, world);
    EXPECT_THAT(message_of<ConfigError>([&] { plain.group({Axis::pp, Axis::dp}); }),
                HasSubstr("no group along {pp,dp}"));
  });
  run_ranks(8, [](World& world) {
    const Grid grid = Grid::dense({.pp = 2, .dp = 2, .cp = 1, .tp = 2});
    Mesh mesh(grid, world, {{Axis::pp, Axis::dp}});
    EXPECT_EQ(mesh.group({Axis::pp, Axis::dp}).world_ranks(), grid.peers(world.rank(), {Axis::pp, Axis::dp}));
  });
}

TEST(Mesh, ShowsTheExpertsTheSameRanks) {
  run_ranks(8, [](World& world) {
    const Grid grid = Grid::dense({.pp = 1, .dp = 4, .cp = 1, .tp = 2});
    const Grid experts = expert_view(grid, 4, 1);
    Mesh mesh(grid, world, {}, experts);
    for (Axis axis : {Axis::ep, Axis::edp, Axis::tp})
      EXPECT_EQ(mesh.expert_group(axis).world_ranks(), experts.peers(world.rank(), axis));
    EXPECT_EQ(mesh.expert_group(Axis::ep).size(), 4);
  });
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.tp = 2}), world);
    EXPECT_THAT(message_of<ConfigError>([&] { mesh.expert_group(Axis::ep); }), HasSubstr("without a view for experts"));
  });
}

TEST(Mesh, MakesGroupsOfAnyRanksOnce) {
  run_ranks(4, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 4}), world);
    if (world.rank() == 1 || world.rank() == 3) {
      Group& tie = mesh.group_of_ranks({3, 1});
      EXPECT_THAT(gathered(tie, world.rank()), ElementsAre(3, 1));
      EXPECT_EQ(&mesh.group_of_ranks({3, 1}), &tie);
    }
    EXPECT_EQ(&mesh.group_of_ranks({0, 1, 2, 3}), &mesh.world_group());
    mesh.end_step();
    if (world.rank() == 0) {
      EXPECT_THAT(message_of<ConfigError>([&] { mesh.group_of_ranks({1, 2}); }), HasSubstr("rank 0 is not in it"));
    }
  });
}

TEST(Mesh, NeedsAsManyRanksAsItsGrid) {
  run_ranks(2, [](World& world) {
    EXPECT_THAT(message_of<ConfigError>([&] { Mesh(Grid::dense({.tp = 4}), world); }),
                HasSubstr("needs 4 ranks, 2 were started"));
  });
}

TEST(Mesh, SaysWhereItsRankIs) {
  std::mutex mutex;
  std::set<std::string> places;
  run_ranks(4, [&](World& world) {
    const Mesh mesh(Grid::dense({.dp = 2, .tp = 2}), world);
    const std::scoped_lock lock(mutex);
    places.insert(mesh.place());
  });
  EXPECT_THAT(places, ElementsAre("dp0 tp0", "dp0 tp1", "dp1 tp0", "dp1 tp1"));
}

}  // namespace
}  // namespace trireme
