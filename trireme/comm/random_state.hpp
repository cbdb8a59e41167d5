#pragma once
// Random states by name: which numbers come next, kept, set, branched and made alike over a group.
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

/// Where a stream of host numbers stands.
struct StreamState {
  std::uint64_t key = 0;      // the seed
  std::uint64_t counter = 0;  // numbers drawn
  bool operator==(const StreamState&) const = default;
};

/// Random numbers on the host, one after the other.
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

/// What random numbers come from: two streams of the host, libtorch's CPU generator and those of its CUDA devices. Each
/// rank has one, and draws from nothing else: ranks as threads share libtorch's default generators.
struct RandomSource {
  /// With generators of its own, on the CPU only.
  explicit RandomSource(std::uint64_t seed);
  /// With the generators that libtorch uses where none is given: those of the process. Does not seed them.
  static RandomSource of_process(std::uint64_t host_seed);
  // A copy would share the generators and not the streams.
  RandomSource(RandomSource&&) = default;
  RandomSource& operator=(RandomSource&&) = default;

  HostStream random, numpy;
  at::Generator torch;
  std::vector<at::Generator> torch_cuda;  // of each CUDA device; empty without CUDA

 private:
  RandomSource(std::uint64_t seed, at::Generator cpu, std::vector<at::Generator> cuda);
};

struct RandomState {
  StreamState random, numpy;
  at::Tensor torch{};                    // bytes of the CPU generator
  std::vector<at::Tensor> torch_cuda{};  // of each CUDA device

  bool operator==(const RandomState& other) const;
};
using RandomStates = std::map<std::string, RandomState>;

RandomState get_current_random_state(const RandomSource& source);
/// Throws where the state has other CUDA devices than the source.
void set_random_state(RandomSource& source, const RandomState& state);

/// While it lives, the source draws from states[key]; then the advanced state lies there again, and the source is where
/// it was: also when an exception passes through.
///
/// In between the map has no such key, so that nobody draws the same numbers twice: a branch within a branch of the
/// same key is an error. The map and the source must outlive it.
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

/// For a checkpoint. The way back throws CheckpointError unless the bytes are exactly a state.
std::vector<std::uint8_t> to_bytes(const RandomState& state);
RandomState random_state_from_bytes(std::span<const std::uint8_t> bytes);

}  // namespace trireme
