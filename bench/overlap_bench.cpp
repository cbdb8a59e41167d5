// How much of the communication of data parallelism and ZeRO is overlapped with computation: two ranks as threads,
// alternating steps over an unlimited link and over a throttled one.
//   usage: trireme_overlap_bench [STEPS]
// The slow link is throttled so that it is busy for half of an unthrottled step (three quarters for stage 3). Hidden =
// 1 - (slow step - free step) / busy time of the link; medians.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include <ATen/Parallel.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/model/decoder.hpp"
#include "trireme/nn/init.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/pipeline/executor.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/testing/throttled_group.hpp"

namespace trireme {
namespace {

constexpr int kRanks = 2;

/// A world whose groups are those of another one behind a throttled link.
class ThrottledWorld final : public World {
 public:
  ThrottledWorld(World& inner, Link link)
      : World(inner.rank(), inner.size(), inner.options(),
              std::make_shared<FlightRecorder>(inner.rank(), inner.size())),
        inner_(inner),
        link_(link) {}

 protected:
  std::unique_ptr<Group> connect(Membership members) override {
    held_.push_back(inner_.make_group(text(members.name, " slow ", link_.bytes_per_s), members.world_ranks));
    if (members.size() == 1)
      return inner_.make_group(text(members.name, " own ", link_.bytes_per_s), members.world_ranks);
    return std::make_unique<ThrottledGroup>(*held_.back(), link_);
  }
  std::unique_ptr<Group> connect_control(Membership members) override {
    return inner_.make_group(text(members.name, " control ", link_.bytes_per_s), members.world_ranks);
  }

 private:
  World& inner_;
  const Link link_;
  std::vector<std::unique_ptr<Group>> held_;
};

ModelConfig model() {
  ModelConfig m;
  m.model_type = "llama";
  m.hidden_size = 256;
  m.num_hidden_layers = 8;
  m.num_attention_heads = m.num_key_value_heads = 8;
  m.head_dim = 32;
  m.intermediate_size = 704;
  m.vocab_size = 1024;
  return m;
}

/// One rank's model on a world, and the times of its steps.
class Side {
 public:
  Side(World& world, int stage) : mesh_(Grid::dense({.dp = kRanks}), world) {
    decoder_ = std::make_shared<Decoder>(model(), Parallel{mesh_, false});
    init_parameters(*decoder_, mesh_, {.layers = 8});
    const UnitPlan units = decoder_->unit_plan();
    zero_ = std::make_unique<Zero>(
        params_of(*decoder_), units, mesh_,
        ZeroOptions{.stage = stage, .bucket_mb = 1, .max_reuse_distance = 0, .persistence_threshold = 1000},
        UpdateOptions{});
    decoder_->use_units(&zero_->chunk(), units);
    executor_ = std::make_unique<Executor>(schedule::make_schedule("1f1b", 1, 1), *zero_, mesh_);
  }

  double step() {
    const at::Tensor ids = at::remainder(at::arange(512) * 7 + mesh_.rank(), 1024);
    const auto begin = std::chrono::steady_clock::now();
    executor_->run({.step = 1,
                    .forward = whole_model([&](int) { return decoder_->loss(ids, ids, whole_samples(4, 128)).loss; }),
                    .loss_gradient = [] { return at::scalar_tensor(1.0 / 1024); }});
    zero_->finish_gradients();
    mesh_.end_step();
    zero_->update({.lr = 1e-4, .max_norm = 1}).settle();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void finish() { zero_->finish_gathers(); }
  std::int64_t bytes_sent() const { return mesh_.group(Axis::dp).traffic().bytes; }
  void together() { mesh_.world_group().barrier().wait(); }

 private:
  Mesh mesh_;
  std::shared_ptr<Decoder> decoder_;
  std::unique_ptr<Zero> zero_;
  std::unique_ptr<Executor> executor_;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void measure(int stage, int steps) {
  run_ranks(kRanks,
            [&](World& world) {
              Side free(world, stage);
              free.step();
              const std::int64_t before = free.bytes_sent();
              std::vector<double> warm;
              for (int i = 0; i < 4; ++i) warm.push_back(free.step());
              const double bytes = static_cast<double>(free.bytes_sent() - before) / 4;
              // Both ranks must choose the same link.
              const at::Tensor slower =
                  world.make_group("choice", {0, 1})
                      ->all_reduce(at::scalar_tensor(median(warm), at::kDouble).view({1}), Reduce::max)
                      .wait();
              const double busy = slower.item<double>() * (stage == 3 ? 0.75 : 0.5);
              ThrottledWorld slow_world(world, {.bytes_per_s = bytes / busy, .latency_s = 1e-3});
              Side slow(slow_world, stage);
              slow.step();
              std::vector<double> with, without;
              for (int i = 0; i < steps; ++i) {
                free.together();
                without.push_back(free.step());
                slow.together();
                with.push_back(slow.step());
              }
              free.finish();
              slow.finish();
              const double exposed = median(with) - median(without);
              if (world.rank() == 0)
                std::printf("stage %d: step %.3f s free, %.3f s over a link that is busy for %.3f s: %.1f %% hidden\n",
                            stage, median(without), median(with), busy, 100 * (1 - exposed / busy));
            },
            {.check = CheckMode::off});
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const int stage : {0, 1, 2, 3}) trireme::measure(stage, argc > 1 ? std::atoi(argv[1]) : 15);
}
