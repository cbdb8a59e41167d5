// Saves and loads the state of a model of a given size through the trainer's own code, with ranks as threads, and
// prints one JSON line: bytes, seconds of the save and of the load, seconds that training was blocked.
//
// usage: trireme_checkpoint_bench FOLDER [MEGABYTES] [RANKS] [BUFFER_MB]
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/train/save/checkpoint_saver.hpp"
#include "trireme/train/save/load_state.hpp"

namespace trireme {
namespace {

/// float32 weights and two states of AdamW: 12 bytes per parameter.
class Matrices : public torch::nn::Module {
 public:
  explicit Matrices(std::int64_t megabytes) {
    constexpr std::int64_t kRows = 1024, kColumns = 1024;
    for (std::int64_t i = 0; i < std::max<std::int64_t>(1, megabytes * 1'000'000 / (12 * kRows * kColumns)); ++i)
      register_parameter(text("w", i), at::randn({kRows, kColumns}));
  }
};

struct Times {
  double save = 0, load = 0, blocked = 0;
  std::uint64_t bytes = 0;
};

Times measure(const std::filesystem::path& folder, std::int64_t megabytes, int ranks, std::size_t buffer) {
  Times out;
  run_ranks(ranks, [&](World& world) {
    Mesh mesh(Grid::dense({.dp = ranks}), world);
    const Matrices model(megabytes);
    Zero zero(params_of(model), {}, mesh, {.stage = 1}, {});
    CheckpointSaver saver({.folder = folder, .keep = 0, .buffer_bytes = buffer}, mesh);
    checkpoint::Manifest manifest;
    manifest.training.step = 1;
    for (int warm = 0; warm < 2; ++warm) {  // the second save has its memory already, as all but the first of a run
      if (mesh.rank() == 0) std::filesystem::remove_all(folder);
      mesh.world_group().barrier().wait();
      saver.take_blocked_seconds();
      const Stopwatch time;
      saver.start(zero, manifest, {});
      saver.before_update();
      const double blocked = saver.take_blocked_seconds();
      saver.finish();
      if (mesh.rank() == 0) {
        const std::optional<SaveOutcome> outcome = saver.take_outcome();
        require<CheckpointError>(outcome && outcome->failure.empty(), outcome ? outcome->failure : "no outcome");
        out.save = time.seconds();
        out.blocked = blocked;
        out.bytes = outcome->bytes;
      }
      mesh.world_group().barrier().wait();
    }
    const Stopwatch time;
    const checkpoint::Reader reader(folder / "step-1");
    load_state(reader, zero);
    mesh.world_group().barrier().wait();
    if (mesh.rank() == 0) out.load = time.seconds();
  });
  return out;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const auto number = [&](int i, long fallback) { return argc > i ? std::atol(argv[i]) : fallback; };
  if (argc < 2) {
    std::cerr << "usage: trireme_checkpoint_bench FOLDER [MEGABYTES] [RANKS] [BUFFER_MB]\n";
    return 64;
  }
  const long buffer = number(4, 2048);
  const trireme::Times times = trireme::measure(argv[1], number(2, 1000), static_cast<int>(number(3, 2)),
                                                static_cast<std::size_t>(buffer) * 1'000'000);
  std::cout << "{\"bytes\": " << times.bytes << ", \"save_s\": " << times.save << ", \"load_s\": " << times.load
            << ", \"blocked_s\": " << times.blocked << "}\n";
}
