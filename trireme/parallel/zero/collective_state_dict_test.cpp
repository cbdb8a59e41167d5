#include "trireme/parallel/zero/collective_state_dict.hpp"

#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/test_helpers.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

Zero sharded(test::UnitNet& net, Mesh& mesh) {
  return {params_of(net),
          net.units(),
          mesh,
          {.stage = 3, .persistence_threshold = 0, .accumulate = at::kDouble, .reduce = at::kDouble},
          {.master = at::kDouble, .states = at::kDouble}};
}

TEST(CollectiveStateDict, HasFullParametersWhereTheyAreWanted) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.dp = 2}), world);
    test::UnitNet net, plain;
    Zero zero = sharded(net, mesh);
    EXPECT_EQ(collective_state_dict(zero).size(), mesh.rank() == 0 ? plain.named_parameters().size() : 0);
    const std::map<std::string, at::Tensor> state = collective_state_dict(zero, StateOn::all_ranks);
    for (const auto& item : plain.named_parameters())
      EXPECT_TRUE(at::allclose(state.at(item.key()), item.value(), 0, 0)) << item.key();
  });
}

/// The hang of other trainers: rank 0 alone asks for the state of a sharded model. It is told whom it waits for.
TEST(CollectiveStateDict, OneRankAloneIsDiagnosed) {
  const std::string what = message_of<CommError>([] {
    run_gloo_threads(2,
                     [](World& world) {
                       Mesh mesh(Grid::dense({.dp = 2}), world);
                       test::UnitNet net;
                       Zero zero = sharded(net, mesh);
                       if (mesh.rank() == 0) collective_state_dict(zero);
                     },
                     {.timeout_s = 1, .hang_folder = testing::TempDir() + "hang"});
  });
  EXPECT_THAT(what, testing::HasSubstr("all_gather"));
  EXPECT_THAT(what, testing::ContainsRegex("missing: rank 1|rank 1.*(lost|closed|gone)"));
}

}  // namespace
}  // namespace trireme
