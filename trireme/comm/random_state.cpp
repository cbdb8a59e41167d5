#include "trireme/comm/random_state.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <torch/cuda.h>

#include "trireme/base/copy_bytes.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

at::Tensor state_of(const at::Generator& generator) {
  at::Generator one = generator;
  const std::scoped_lock lock(one.mutex());
  return one.get_state();
}

void set_state_of(at::Generator& generator, const at::Tensor& state) {
  const std::scoped_lock lock(generator.mutex());
  generator.set_state(state);
}

std::string keys_of(const RandomStates& states) {
  std::string keys;
  for (const auto& [key, state] : states) keys += (keys.empty() ? "" : ", ") + key;
  return keys.empty() ? "none" : keys;
}

void check_key(const RandomStates& states, const std::string& key) {
  require(states.contains(key), "branch_random_state: there is no random state \"", key,
          "\" (there is: ", keys_of(states),
          "), or a branch of it is open\n  fix: add it to the states, or end the other branch first");
}

// The bytes of a state: kMagic, key and counter of both streams, then length and bytes of torch, then the number of
// CUDA devices with length and bytes of each. Numbers are 64 bits, little endian.
constexpr std::uint64_t kMagic = 0x3130'4554'4154'5352;  // "RSTATE01" read as text

class Writer {
 public:
  void number(std::uint64_t n) {
    for (int i = 0; i < 8; ++i) out_.push_back(static_cast<std::uint8_t>(n >> (8 * i)));
  }
  void stream(const StreamState& state) { number(state.key), number(state.counter); }
  void tensor(const at::Tensor& bytes) {
    const at::Tensor host = bytes.cpu().contiguous();
    number(host.nbytes());
    const auto* data = static_cast<const std::uint8_t*>(host.const_data_ptr());
    out_.insert(out_.end(), data, data + host.nbytes());
  }
  std::vector<std::uint8_t> take() { return std::move(out_); }

 private:
  std::vector<std::uint8_t> out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : left_(bytes) {}

  std::uint64_t number() {
    const auto bytes = next(8);
    std::uint64_t n = 0;
    for (std::size_t i = 0; i < 8; ++i) n |= std::uint64_t{bytes[i]} << (8 * i);
    return n;
  }
  StreamState stream() {
    const std::uint64_t key = number(), counter = number();
    return {key, counter};
  }
  at::Tensor tensor() {
    const auto bytes = next(number());
    const at::Tensor out = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
    copy_bytes(out.mutable_data_ptr(), bytes.data(), bytes.size());
    return out;
  }
  std::size_t left() const { return left_.size(); }

 private:
  std::span<const std::uint8_t> next(std::uint64_t size) {
    require<CheckpointError>(size <= left_.size(), "random state: cut short: ", size, " bytes are announced, ",
                             left_.size(), " are there");
    const auto bytes = left_.first(static_cast<std::size_t>(size));
    left_ = left_.subspan(bytes.size());
    return bytes;
  }

  std::span<const std::uint8_t> left_;
};

}  // namespace

RandomSource::RandomSource(std::uint64_t seed, at::Generator cpu, std::vector<at::Generator> cuda)
    : random(seed, "random"), numpy(seed, "numpy"), torch(std::move(cpu)), torch_cuda(std::move(cuda)) {}

RandomSource::RandomSource(std::uint64_t seed) : RandomSource(seed, at::detail::createCPUGenerator(seed), {}) {}

RandomSource RandomSource::of_process(std::uint64_t host_seed, at::Device device) {
  std::vector<at::Generator> of_gpu;
  if (device.is_cuda()) of_gpu.push_back(at::globalContext().defaultGenerator(device));
  return {host_seed, at::detail::getDefaultCPUGenerator(), std::move(of_gpu)};
}

bool RandomState::operator==(const RandomState& other) const {
  return random == other.random && numpy == other.numpy && at::equal(torch, other.torch) &&
         std::equal(torch_cuda.begin(), torch_cuda.end(), other.torch_cuda.begin(), other.torch_cuda.end(),
                    [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
}

void seed_generators(RandomSource& source, std::uint64_t seed, std::int64_t steps, int rank) {
  const RandomStream stream(seed, "generators of a rank");
  const std::uint64_t own = stream.bits(static_cast<std::uint64_t>(steps) << 24 | static_cast<std::uint64_t>(rank));
  const auto set = [&](at::Generator generator) {
    const std::scoped_lock lock(generator.mutex());
    generator.set_current_seed(own);
  };
  set(source.torch);
  for (const at::Generator& generator : source.torch_cuda) set(generator);
}

RandomState get_current_random_state(const RandomSource& source) {
  RandomState state{source.random.state(), source.numpy.state(), state_of(source.torch)};
  for (const at::Generator& generator : source.torch_cuda) state.torch_cuda.push_back(state_of(generator));
  return state;
}

void set_random_state(RandomSource& source, const RandomState& state) {
  require(state.torch.defined(), "set_random_state: the state is empty");
  require(state.torch_cuda.size() == source.torch_cuda.size(), "set_random_state: the state is of ",
          state.torch_cuda.size(), " CUDA devices, the source has ", source.torch_cuda.size());
  // The generators validate their state; the streams accept anything, so they are set last.
  set_state_of(source.torch, state.torch);
  for (std::size_t i = 0; i < state.torch_cuda.size(); ++i) set_state_of(source.torch_cuda[i], state.torch_cuda[i]);
  source.random.set_state(state.random);
  source.numpy.set_state(state.numpy);
}

RandomState fitted_to(const RandomSource& source, RandomState saved, std::size_t device_index) {
  std::vector<at::Tensor> fitting;
  for (const at::Generator& generator : source.torch_cuda)
    fitting.push_back(saved.torch_cuda.empty() ? state_of(generator)
                                               : saved.torch_cuda[std::min(device_index, saved.torch_cuda.size() - 1)]);
  saved.torch_cuda = std::move(fitting);
  return saved;
}

RandomBranch::RandomBranch(RandomSource& source, RandomStates& states, const std::string& key)
    : source_(source), states_(states), outer_(get_current_random_state(source)) {
  check_key(states, key);
  set_random_state(source, states.at(key));
  entry_ = states.extract(key);
}

RandomBranch::~RandomBranch() {
  entry_.mapped() = get_current_random_state(source_);
  states_.insert(std::move(entry_));
  set_random_state(source_, outer_);
}

RandomState get_synced_random_state(const RandomState& state, Group& group, at::Device device) {
  if (group.size() == 1) return state;
  std::vector<std::uint8_t> bytes = to_bytes(state);
  const auto size = static_cast<std::int64_t>(bytes.size());
  const at::Tensor sizes = group.all_gather(at::empty({1}, at::kLong).fill_(size).to(device)).wait().cpu();
  for (int r = 0; r < group.size(); ++r) {
    const std::int64_t theirs = sizes.const_data_ptr<std::int64_t>()[r],
                       first = sizes.const_data_ptr<std::int64_t>()[0];
    require<ConfigError>(theirs == first, "get_synced_random_state on group ", group.str(), ": the state of rank ", r,
                         " has ", theirs, " bytes, that of rank 0 has ", first,
                         "\n  fix: give all ranks of the group the same number of CUDA devices");
  }
  const at::Tensor host = at::from_blob(bytes.data(), {size}, at::kByte);
  const at::Tensor synced = group.broadcast_(host.to(device, /*non_blocking=*/false, /*copy=*/true), 0).wait().cpu();
  return random_state_from_bytes({synced.const_data_ptr<std::uint8_t>(), bytes.size()});
}

std::vector<std::uint8_t> to_bytes(const RandomState& state) {
  require(state.torch.defined(), "to_bytes: the random state is empty");
  Writer out;
  out.number(kMagic);
  out.stream(state.random);
  out.stream(state.numpy);
  out.tensor(state.torch);
  out.number(state.torch_cuda.size());
  for (const at::Tensor& one : state.torch_cuda) out.tensor(one);
  return out.take();
}

RandomState random_state_from_bytes(std::span<const std::uint8_t> bytes) {
  Reader in(bytes);
  require<CheckpointError>(bytes.size() >= 8 && in.number() == kMagic, "random state: ", bytes.size(),
                           " bytes that do not begin as one");
  RandomState state;
  state.random = in.stream();
  state.numpy = in.stream();
  state.torch = in.tensor();
  // Each device takes at least eight bytes: a count that is too large fails there, not by exhausting memory.
  for (std::uint64_t devices = in.number(); devices > 0; --devices) state.torch_cuda.push_back(in.tensor());
  require<CheckpointError>(in.left() == 0, "random state: ", in.left(), " bytes behind its end");
  return state;
}

}  // namespace trireme
