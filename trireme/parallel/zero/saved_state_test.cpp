#include "trireme/parallel/zero/saved_state.hpp"

#include <map>
#include <mutex>

#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/embedding.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/testing/zero_helpers.hpp"

namespace trireme {
namespace {

struct SavedLayout {
  int dp = 1, tp = 1, stage = 0, replicate = 1;
};

/// A tensor's elements by (name, kind), each with the number of ranks that have a slice with it.
using Counts = std::map<std::pair<std::string, std::string>, std::map<std::int64_t, int>>;

void count(const StateSlice& slice, Counts& counts) {
  std::vector<std::int64_t> index;
  for (const Range& side : slice.box) index.push_back(side.begin);
  for (;;) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < index.size(); ++d) flat = flat * slice.shape[d] + index[d];
    ++counts[{slice.name, slice.kind}][flat];
    std::size_t d = index.size();
    while (d-- > 0) {
      if (++index[d] < slice.box[d].end) break;
      index[d] = slice.box[d].begin;
      if (d == 0) return;
    }
    if (index.empty()) return;
  }
}

/// A layer with every kind of parameter: fused and cut rows, cut columns, shared heads, padding, replicated.
class EveryKind : public Layer {
 public:
  explicit EveryKind(const Parallel& parallel, std::int64_t width) {
    const auto add = [&](const char* local_name, Shape shape, Placement placement) {
      declare(local_name, {.shape = std::move(shape), .placement = std::move(placement)}, parallel);
    };
    add("qkv", {(4 + 2 * 1) * 6, width}, {.cuts = {fused_qkv(Axis::tp, 0, 4, 1, 6)}});  // one KV head, shared
    add("gate_up", {2 * 12, width}, {.cuts = {gate_up(Axis::tp, 0, 12)}});
    add("down", {width, 12}, {.cuts = {{Axis::tp, 1}}});
    // With a lot of padding, but where the amounts of ranks are compared.
    const std::int64_t multiple = width <= 10 ? kVocabularyMultiple : 1;
    add("vocabulary", {37, width}, {.cuts = {{.axis = Axis::tp, .dim = 0, .padded_to = multiple}}});
    add("norm", {width}, {});
    add("frozen", {9, 5}, {});
  }
};

void with_zero(const SavedLayout& layout, const std::function<void(const Zero&, int rank)>& f,
               std::int64_t width = 10) {
  run_ranks(layout.dp * layout.tp, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = layout.dp, .tp = layout.tp}), world);
    const InitScope scope(at::kCPU, at::kFloat);
    const auto layer = std::make_shared<EveryKind>(Parallel(mesh, false), width);
    layer->named_parameters()["frozen"].set_requires_grad(false);
    UnitPlan units;
    std::vector<std::string> names;
    for (const Param& param : params_of(*layer)) names.push_back(param.name);
    units.units.push_back({"all", names});
    units.visits.push_back({0});
    const Zero zero(
        params_of(*layer), units, mesh,
        {.stage = layout.stage, .replicate = layout.replicate, .bucket_mb = 0.001, .persistence_threshold = 20}, {});
    f(zero, mesh.rank());
  });
}

const std::vector<SavedLayout> kSavedLayouts{{1, 1, 0}, {2, 1, 0}, {4, 1, 1},    {2, 2, 1}, {1, 4, 0},    {2, 2, 2},
                                             {4, 1, 3}, {2, 2, 3}, {4, 1, 3, 2}, {3, 1, 0}, {4, 2, 1, 2}, {2, 4, 3}};

/// Every element of every weight and state is saved by exactly one rank, and loaded by every rank that holds it.
TEST(SavedState, EveryElementIsSavedOnce) {
  for (const SavedLayout& layout : kSavedLayouts) {
    SCOPED_TRACE(text("dp ", layout.dp, " tp ", layout.tp, " zero ", layout.stage, " replicate ", layout.replicate));
    Counts saved, loaded;
    std::mutex mutex;
    with_zero(layout, [&](const Zero& zero, int) {
      const std::lock_guard lock(mutex);
      for (const StateSlice& slice : slices_to_save(zero)) {
        count(slice, saved);
        std::int64_t elements = 1;
        for (const Range& side : slice.box) elements *= side.size();
        EXPECT_EQ(slice.values.numel(), elements);
      }
      for (const StateSlice& slice : slices_to_load(zero)) count(slice, loaded);
    });
    const std::map<std::string, std::size_t> sizes{{"qkv", 360},        {"gate_up", 240}, {"down", 120},
                                                   {"vocabulary", 370}, {"norm", 10},     {"frozen", 45}};
    ASSERT_EQ(saved.size(), 5u * 3u + 1u) << "weight, exp_avg and exp_avg_sq of five, weight of the frozen one";
    for (const auto& [key, elements] : saved) {
      EXPECT_EQ(elements.size(), sizes.at(key.first)) << key.first << " " << key.second;
      for (const auto& [element, ranks] : elements) ASSERT_EQ(ranks, 1) << key.first << " element " << element;
      EXPECT_EQ(loaded.at(key).size(), elements.size()) << key.first;
    }
    EXPECT_EQ(loaded.size(), saved.size());
  }
}

/// Replicated tensors are spread over their replicas.
TEST(SavedState, RanksSaveEqualAmounts) {
  std::map<int, std::int64_t> elements;
  std::mutex mutex;
  constexpr std::int64_t kWide = 1000;
  with_zero(
      {.dp = 4, .tp = 1, .stage = 0},
      [&](const Zero& zero, int rank) {
        const std::lock_guard lock(mutex);
        for (const StateSlice& slice : slices_to_save(zero)) elements[rank] += slice.values.numel();
      },
      kWide);
  const std::int64_t total = 3 * (36 + 24 + 12 + 37 + 1) * kWide + 45;
  ASSERT_EQ(elements.size(), 4u);
  for (const auto& [rank, count_of_rank] : elements) EXPECT_NEAR(count_of_rank, total / 4, total / 50) << rank;
}

}  // namespace
}  // namespace trireme
