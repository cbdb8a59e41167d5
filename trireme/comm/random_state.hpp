#pragma once
// Named random states: save, restore, branch, and synchronize the state of the random generators over a group.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "trireme/base/philox.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {

/// The position of a host random stream.
struct StreamState {
  std::uint64_t key = 0;      // the seed
  std::uint64_t counter = 0;  // how many numbers were drawn
  bool operator==(const StreamState&) const = default;
};

/// A sequential host random stream.
class HostStream {
 public:
  HostStream(std::uint64_t seed, std::string purpose) : purpose_(std::move(purpose)), state_{seed, 0} {}

  std::uint64_t bits() { return stream().bits(state_.counter++); }
  /// In [0, 1).
  double uniform() { return stream().uniform(state_.counter++); }
  /// One of 0 ... n - 1.
  std::uint64_t below(std::uint64_t n) { return stream().below(state_.counter++, n); }
  double normal() { return stream().normal(state_.counter++); }

  const StreamState& state() const { return state_; }
  void set_state(const StreamState& state) { state_ = state; }

 private:
  RandomStream stream() const { return {state_.key, purpose_}; }

  std::string purpose_;
  StreamState state_;
};

/// All random generators of a rank: two host streams, libtorch's CPU generator and those of its CUDA devices. Each rank
/// has one, and uses no other: ranks that are threads share libtorch's default generators.
struct RandomSource {
  /// With its own generators, CPU only.
  explicit RandomSource(std::uint64_t seed);
  /// With libtorch's default generators, which are per process: of the CPU, and of `device` if it is a GPU. Other GPUs
  /// that the process sees are not the rank's. Does not seed them.
  static RandomSource of_process(std::uint64_t host_seed, at::Device device = at::kCPU);
  // A copy would share the generators but not the streams.
  RandomSource(RandomSource&&) = default;
  RandomSource& operator=(RandomSource&&) = default;

  HostStream random, numpy;
  at::Generator torch;
  std::vector<at::Generator> torch_cuda;  // of the rank's own device; empty without CUDA

 private:
  RandomSource(std::uint64_t seed, at::Generator cpu, std::vector<at::Generator> cuda);
};

/// The rule for runs that begin, or resume on another number of ranks: libtorch's generators of a rank get a seed that
/// follows from the run's seed, the number of finished steps and the rank. libtorch itself seeds them at random.
void seed_generators(RandomSource& source, std::uint64_t seed, std::int64_t steps, int rank);

struct RandomState {
  StreamState random, numpy;
  at::Tensor torch{};                    // state of the CPU generator
  std::vector<at::Tensor> torch_cuda{};  // one per CUDA device

  bool operator==(const RandomState& other) const;
};
using RandomStates = std::map<std::string, RandomState>;

RandomState get_current_random_state(const RandomSource& source);
/// Throws if the number of CUDA devices differs from that of the source.
void set_random_state(RandomSource& source, const RandomState& state);
/// A state that was saved by a process that saw other devices, for this source: the generator of a GPU is that of
/// `device_index` among those that were saved, or the last; if none was, it stays as it is.
RandomState fitted_to(const RandomSource& source, RandomState saved, std::size_t device_index);

/// While in scope, the source uses states[key]; the destructor stores the advanced state there again and restores the
/// source, also during stack unwinding.
///
/// In between the map does not contain the key, so that the same numbers are never drawn twice: a nested branch with
/// the same key is an error. The map and the source must outlive it.
class [[nodiscard]] RandomBranch {
 public:
  RandomBranch(RandomSource& source, RandomStates& states, const std::string& key);
  ~RandomBranch();
  RandomBranch(const RandomBranch&) = delete;
  RandomBranch& operator=(const RandomBranch&) = delete;

 private:
  RandomSource& source_;
  RandomStates& states_;
  const RandomState outer_;
  RandomStates::node_type entry_;
};

inline RandomBranch branch_random_state(RandomSource& source, RandomStates& states, const std::string& key) {
  return {source, states, key};
}

/// The state of the group's rank 0, on all its ranks: a collective call. `device`: where the group's tensors live.
RandomState get_synced_random_state(const RandomState& state, Group& group, at::Device device = at::kCPU);

/// For a checkpoint. The inverse throws CheckpointError unless the bytes are exactly one state.
std::vector<std::uint8_t> to_bytes(const RandomState& state);
RandomState random_state_from_bytes(std::span<const std::uint8_t> bytes);

}  // namespace trireme
