#include "trireme/comm/random_state.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// The elements that a dropout keeps.
at::Tensor dropout_mask(RandomSource& source, std::int64_t size = 64) {
  return at::empty({size}).bernoulli_(0.5, source.torch);
}

/// One number from each generator of the source.
std::vector<double> draw_of_all(RandomSource& source) {
  return {source.random.uniform(), source.numpy.normal(),
          at::empty({1}, at::kDouble).uniform_(0, 1, source.torch).item<double>()};
}

TEST(HostStream, IsThePhiloxStreamReadInOrder) {
  HostStream stream(5, "random");
  const RandomStream expected(5, "random");
  EXPECT_EQ(stream.bits(), expected.bits(0));
  EXPECT_EQ(stream.uniform(), expected.uniform(1));
  EXPECT_EQ(stream.below(10), expected.below(2, 10));
  EXPECT_EQ(stream.normal(), expected.normal(3));
  EXPECT_EQ(stream.state(), (StreamState{5, 4}));
  stream.set_state({5, 1});
  EXPECT_EQ(stream.uniform(), expected.uniform(1));
  RandomSource source(5);
  EXPECT_NE(source.random.bits(), source.numpy.bits());
}

/// CPU generators stand for those of GPUs: the number of them is what differs between processes.
TEST(RandomState, OfOtherDevicesIsFitted) {
  const auto generator = [](std::uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); };
  RandomSource saved_by(2), source(1);
  saved_by.torch_cuda = {generator(7), generator(8), generator(9)};
  source.torch_cuda = {generator(1)};
  const RandomState saved = get_current_random_state(saved_by);
  EXPECT_ANY_THROW(set_random_state(source, saved)) << "three devices are not one";
  for (const auto& [device, expected] : {std::pair<std::size_t, std::size_t>{0, 0}, {1, 1}, {5, 2}}) {
    const RandomState fitted = fitted_to(source, saved, device);
    ASSERT_EQ(fitted.torch_cuda.size(), 1u);
    EXPECT_TRUE(at::equal(fitted.torch_cuda[0], saved.torch_cuda[expected])) << device;
    set_random_state(source, fitted);
    EXPECT_EQ(draw_of_all(source), draw_of_all(saved_by));
    set_random_state(saved_by, saved);
  }
  // Saved without a GPU: the generator stays as it is, the others are restored.
  RandomState of_cpus = saved;
  of_cpus.torch_cuda.clear();
  const RandomState before = get_current_random_state(source), fitted = fitted_to(source, of_cpus, 0);
  EXPECT_TRUE(at::equal(fitted.torch_cuda.at(0), before.torch_cuda[0]));
  EXPECT_TRUE(at::equal(fitted.torch, saved.torch));
  // Saved with GPUs, gone on without.
  source.torch_cuda.clear();
  EXPECT_TRUE(fitted_to(source, saved, 0).torch_cuda.empty());
}

TEST(RandomState, IsWhatComesNext) {
  RandomSource source(1);
  draw_of_all(source);
  const RandomState state = get_current_random_state(source);
  EXPECT_EQ(get_current_random_state(source), state);  // reading the state changes nothing
  const std::vector<double> next = draw_of_all(source);
  EXPECT_NE(get_current_random_state(source), state);
  set_random_state(source, state);
  EXPECT_EQ(draw_of_all(source), next);
  // In another source too: no other generator is involved.
  RandomSource other(2);
  EXPECT_NE(draw_of_all(other), next);
  set_random_state(other, state);
  EXPECT_EQ(draw_of_all(other), next);
}

TEST(RandomState, ComparesEveryPart) {
  RandomSource source(1);
  const RandomState state = get_current_random_state(source);
  source.random.bits();
  EXPECT_NE(get_current_random_state(source), state);
  set_random_state(source, state);
  source.numpy.bits();
  EXPECT_NE(get_current_random_state(source), state);
  set_random_state(source, state);
  dropout_mask(source, 1);
  EXPECT_NE(get_current_random_state(source), state);
  set_random_state(source, state);
  RandomState with_cuda = state;
  with_cuda.torch_cuda.push_back(at::zeros({16}, at::kByte));
  EXPECT_NE(with_cuda, state);
}

TEST(RandomState, OfTheProcessIsThatOfLibtorchsDefaultGenerators) {
  RandomSource source = RandomSource::of_process(1);
  const RandomState before = get_current_random_state(source);
  const at::Tensor drawn = at::rand({3});
  EXPECT_NE(get_current_random_state(source), before);
  set_random_state(source, before);
  EXPECT_TRUE(at::equal(at::rand({3}), drawn));
  EXPECT_TRUE(source.torch_cuda.empty()) << "of the CPU; other GPUs than a rank's own are not its";
  if (at::hasCUDA()) {
    EXPECT_EQ(RandomSource::of_process(1, at::Device(at::kCUDA, 0)).torch_cuda.size(), 1U);
  }
  set_random_state(source, before);
}

TEST(RandomState, ASeedGivesTheNumbersOfManualSeed) {
  RandomSource source(0);
  EXPECT_NEAR(at::randn({2, 4}, source.torch)[0][0].item<double>(), 1.5410, 5e-5);  // torch.manual_seed(0) in Python
}

class BranchOfRandomState : public testing::Test {
 protected:
  RandomSource source_{1};
  RandomStates states_{{"tp", get_current_random_state(RandomSource(10))},
                       {"dp", get_current_random_state(RandomSource(20))}};
};

TEST_F(BranchOfRandomState, DrawsFromItsOwnStateAndLeavesTheOuterOne) {
  const RandomState outer = get_current_random_state(source_);
  RandomSource alone(10);
  const std::vector<double> first = draw_of_all(alone), second = draw_of_all(alone);
  {
    const RandomBranch branch = branch_random_state(source_, states_, "tp");
    EXPECT_EQ(draw_of_all(source_), first);
  }
  EXPECT_EQ(get_current_random_state(source_), outer);  // bitwise
  draw_of_all(source_);
  {
    const RandomBranch branch = branch_random_state(source_, states_, "tp");
    EXPECT_EQ(draw_of_all(source_), second);  // continues after the first branch
  }
  EXPECT_EQ(states_.at("tp"), get_current_random_state(alone));
  EXPECT_EQ(states_.at("dp"), get_current_random_state(RandomSource(20)));
}

TEST_F(BranchOfRandomState, EndsWhenAnExceptionPasses) {
  const RandomState outer = get_current_random_state(source_);
  RandomSource alone(10);
  draw_of_all(alone);
  EXPECT_THROW(
      {
        const RandomBranch branch = branch_random_state(source_, states_, "tp");
        draw_of_all(source_);
        throw std::runtime_error("in the middle");
      },
      std::runtime_error);
  EXPECT_EQ(get_current_random_state(source_), outer);
  EXPECT_EQ(states_.at("tp"), get_current_random_state(alone));
}

TEST_F(BranchOfRandomState, Nests) {
  const RandomState outer = get_current_random_state(source_);
  RandomSource tp(10), dp(20);
  {
    const RandomBranch first = branch_random_state(source_, states_, "tp");
    EXPECT_EQ(draw_of_all(source_), draw_of_all(tp));
    {
      const RandomBranch second = branch_random_state(source_, states_, "dp");
      EXPECT_EQ(draw_of_all(source_), draw_of_all(dp));
    }
    EXPECT_EQ(draw_of_all(source_), draw_of_all(tp));
  }
  EXPECT_EQ(states_.at("tp"), get_current_random_state(tp));
  EXPECT_EQ(states_.at("dp"), get_current_random_state(dp));
  EXPECT_EQ(get_current_random_state(source_), outer);
}

TEST_F(BranchOfRandomState, AnUnknownKeyIsAnErrorAndChangesNothing) {
  const RandomState outer = get_current_random_state(source_);
  EXPECT_THAT(message_of<InternalError>([&] { const auto branch = branch_random_state(source_, states_, "pp"); }),
              HasSubstr("there is no random state \"pp\" (there is: dp, tp)"));
  // The same key twice would draw the same numbers twice.
  const RandomBranch open = branch_random_state(source_, states_, "tp");
  EXPECT_THAT(message_of<InternalError>([&] { const auto branch = branch_random_state(source_, states_, "tp"); }),
              HasSubstr("or a branch of it is open"));
  EXPECT_EQ(get_current_random_state(source_), get_current_random_state(RandomSource(10)));
  EXPECT_EQ(states_.size(), 1U);
}

TEST_F(BranchOfRandomState, AStateOfOtherDevicesIsRefused) {
  const RandomState outer = get_current_random_state(source_);
  states_.at("tp").torch_cuda.push_back(at::zeros({16}, at::kByte));
  EXPECT_THAT(message_of<InternalError>([&] { const auto branch = branch_random_state(source_, states_, "tp"); }),
              HasSubstr("the state is of 1 CUDA devices, the source has 0"));
  EXPECT_THAT(message_of<InternalError>([&] { set_random_state(source_, RandomState{}); }), HasSubstr("is empty"));
  EXPECT_EQ(get_current_random_state(source_), outer);
  EXPECT_TRUE(states_.contains("tp"));
}

class SyncedRandomState : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, SyncedRandomState, testing::Values(1, 2, 4));

TEST_P(SyncedRandomState, MakesEqualDropoutMasks) {
  run_ranks(GetParam(), [](Group& g) {
    RandomSource source(100 + static_cast<std::uint64_t>(g.rank()));
    const auto all_equal = [&g](const at::Tensor& mask) {
      const at::Tensor all = g.all_gather(mask.unsqueeze(0)).wait();
      return (all == all[0]).all().item<bool>();
    };
    if (g.size() > 1) {
      EXPECT_FALSE(all_equal(dropout_mask(source)));
    }
    const RandomState outer = get_current_random_state(source);
    RandomStates states{{"tp", get_synced_random_state(outer, g)}};
    EXPECT_EQ(states.at("tp"), get_synced_random_state(get_current_random_state(source), g));
    at::Tensor first;
    for (int step = 0; step < 2; ++step) {
      {
        const RandomBranch branch = branch_random_state(source, states, "tp");
        const at::Tensor mask = dropout_mask(source);
        EXPECT_TRUE(all_equal(mask));
        if (step == 1) {
          EXPECT_FALSE(at::equal(mask, first));  // it advances
        }
        first = mask;
        EXPECT_TRUE(all_equal(at::empty({1}, at::kDouble).fill_(source.random.uniform())));
        EXPECT_TRUE(all_equal(at::empty({1}, at::kDouble).fill_(source.numpy.uniform())));
      }
      if (step == 0) {
        EXPECT_EQ(get_current_random_state(source), outer);
      }
      const at::Tensor own = dropout_mask(source);
      if (g.size() > 1) {
        EXPECT_FALSE(all_equal(own));
      }
    }
  });
}

TEST_P(SyncedRandomState, IsThatOfRankZero) {
  run_ranks(GetParam(), [](Group& g) {
    const RandomState mine = get_current_random_state(RandomSource(static_cast<std::uint64_t>(g.rank())));
    EXPECT_EQ(get_synced_random_state(mine, g), get_current_random_state(RandomSource(0)));
    EXPECT_EQ(mine, get_current_random_state(RandomSource(static_cast<std::uint64_t>(g.rank()))));
  });
}

TEST(RandomState, RanksWithOtherDevicesAreTold) {
  run_ranks(2, [](Group& g) {
    RandomState state = get_current_random_state(RandomSource(1));
    if (g.rank() == 1) state.torch_cuda.push_back(at::zeros({16}, at::kByte));
    EXPECT_THAT(message_of<ConfigError>([&] { get_synced_random_state(state, g); }),
                HasSubstr("get_synced_random_state on group world{0,1}: the state of rank 1 has"));
  });
}

TEST(RandomState, GoesToBytesAndBack) {
  RandomSource source(1);
  draw_of_all(source);
  source.numpy.bits();
  RandomState state = get_current_random_state(source);
  EXPECT_EQ(random_state_from_bytes(to_bytes(state)), state);
  state.torch_cuda = {at::arange(16, at::kByte), at::zeros({0}, at::kByte)};
  const std::vector<std::uint8_t> bytes = to_bytes(state);
  EXPECT_EQ(random_state_from_bytes(bytes), state);
  EXPECT_EQ(std::string(bytes.begin(), bytes.begin() + 8), "RSTATE01");
}

TEST(RandomState, DamagedBytesAreRefused) {
  const std::vector<std::uint8_t> bytes = to_bytes(get_current_random_state(RandomSource(1)));
  const auto read = [](std::vector<std::uint8_t> damaged) {
    return message_of<CheckpointError>([&] { random_state_from_bytes(damaged); });
  };
  for (std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{8}, std::size_t{50}, bytes.size() - 1})
    EXPECT_THAT(read({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}), HasSubstr("random state: "));
  std::vector<std::uint8_t> longer = bytes;
  longer.push_back(0);
  EXPECT_THAT(read(longer), HasSubstr("1 bytes behind its end"));
  std::vector<std::uint8_t> other = bytes;
  other[0] ^= 1;
  EXPECT_THAT(read(other), HasSubstr("do not begin as one"));
  std::vector<std::uint8_t> huge = bytes;
  for (int i = 1; i <= 8; ++i) huge[huge.size() - static_cast<std::size_t>(i)] = 0xff;  // device count
  EXPECT_THAT(read(huge), HasSubstr("cut short"));
}

}  // namespace
}  // namespace trireme
