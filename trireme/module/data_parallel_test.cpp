#include "trireme/module/data_parallel.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/module/sync_batch_norm.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// A module as a user writes it, from a batch [n, ...] to one number per sample.
struct UserNet : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

struct Perceptron final : UserNet {
  explicit Perceptron(std::int64_t hidden = 16) : first(8, hidden), last(hidden, 1) {
    register_module("first", first);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) override { return last(first(x).tanh()); }
  torch::nn::Linear first, last;
};

struct Convolutions final : UserNet {
  explicit Convolutions(bool normalised) : conv(torch::nn::Conv2dOptions(1, 4, 3)), last(4, 1) {
    register_module("conv", conv);
    if (normalised) norm = register_module("norm", torch::nn::BatchNorm2d(4));
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) override {
    at::Tensor y = conv(x.view({-1, 1, 2, 4}).repeat({1, 1, 2, 1}));
    if (norm) y = norm(y);
    return last(y.relu().mean({2, 3}));
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm = nullptr;
  torch::nn::Linear last;
};

/// With the batch norm by the samples of all ranks.
struct Synchronized final : UserNet {
  Synchronized() : conv(torch::nn::Conv2dOptions(1, 4, 3)), norm(4), last(4, 1) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) override {
    return last(norm(conv(x.view({-1, 1, 2, 4}).repeat({1, 1, 2, 1}))).relu().mean({2, 3}));
  }
  torch::nn::Conv2d conv;
  SyncBatchNorm norm;
  torch::nn::Linear last;
};

struct Encoder final : UserNet {
  Encoder() : layer(torch::nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(8).dropout(0)), last(4, 1) {
    register_module("layer", layer);
    register_module("last", last);
  }
  at::Tensor forward(const at::Tensor& x) override { return last(layer(x.view({-1, 2, 4}).transpose(0, 1)).mean(0)); }
  torch::nn::TransformerEncoderLayer layer;
  torch::nn::Linear last;
};

/// Two tables of which a rank may use one or none, and one with sparse gradients.
struct Tables final : UserNet {
  Tables() : words(torch::nn::EmbeddingOptions(8, 3).sparse(true)), odd(3, 1), even(3, 1), never(3, 1) {
    register_module("words", words);
    register_module("odd", odd);
    register_module("even", even);
    register_module("never", never);
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor ids = x.select(1, 0).abs().mul(10).to(at::kLong).remainder(8);
    const at::Tensor rows = words(ids);
    at::Tensor y = at::zeros({x.size(0), 1}, at::kDouble);
    // Data decides which of the two is used at all.
    const at::Tensor is_odd = ids.remainder(2).eq(1);
    if (is_odd.any().item<bool>()) y = y + odd(rows) * is_odd.unsqueeze(1);
    if (!is_odd.all().item<bool>()) y = y + even(rows) * is_odd.logical_not().unsqueeze(1);
    return y;
  }
  torch::nn::Embedding words;
  torch::nn::Linear odd, even, never;
};

template <class Net, class... Args>
std::shared_ptr<UserNet> make(std::uint64_t seed, Args... args) {
  auto net = std::make_shared<Net>(args...);
  net->to(at::kDouble);
  const at::NoGradGuard no_grad;
  std::int64_t number = 0;
  for (at::Tensor parameter : net->parameters())
    parameter.copy_((at::arange(parameter.numel(), at::kDouble) * 0.7 + static_cast<double>(seed) + 3 * number++)
                        .sin()
                        .view(parameter.sizes()) *
                    0.5);
  return net;
}
using Maker = std::function<std::shared_ptr<UserNet>(std::uint64_t seed)>;

constexpr std::int64_t kUserBatch = 8;
at::Tensor batch_of(int step) {
  return ((at::arange(kUserBatch * 8, at::kDouble) + 11.0 * step) * 0.37).sin().view({kUserBatch, 8});
}
at::Tensor mean_loss(UserNet& net, const at::Tensor& x) { return (net.forward(x) - x.sum(1, true)).square().mean(); }

std::unique_ptr<torch::optim::Optimizer> optimizer_of(UserNet& net, bool sgd) {
  if (sgd)
    return std::make_unique<torch::optim::SGD>(net.parameters(),
                                               torch::optim::SGDOptions(0.05).momentum(sgd ? 0 : 0.9));
  return std::make_unique<torch::optim::Adam>(net.parameters(), torch::optim::AdamOptions(0.01));
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> gradients;  // of the first step; undefined: none
  std::map<std::string, at::Tensor> parameters;
};

void note(Trained& out, UserNet& net, int step) {
  for (const auto& parameter : net.named_parameters()) {
    at::Tensor gradient = parameter.value().grad();
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();
    if (step == 0) out.gradients[parameter.key()] = gradient.defined() ? gradient.clone() : at::Tensor();
    out.parameters[parameter.key()] = parameter.value().detach().clone();
  }
}

constexpr int kUserSteps = 10;

Trained train_alone(const Maker& maker, bool sgd) {
  const auto net = maker(1);
  const auto optimizer = optimizer_of(*net, sgd);
  Trained out;
  for (int step = 0; step < kUserSteps; ++step) {
    optimizer->zero_grad();
    const at::Tensor loss = mean_loss(*net, batch_of(step));
    loss.backward();
    optimizer->step();
    out.losses.push_back(loss.item<double>());
    note(out, *net, step);
  }
  return out;
}

/// `microbatches` per step, all but the last without communication.
Trained train_parallel(const Maker& maker, bool sgd, int ranks, int microbatches, const DataParallelOptions& options) {
  Trained out;
  run_ranks(ranks, [&](Group& group) {
    const auto net = maker(static_cast<std::uint64_t>(1 + 5 * group.rank()));  // ranks begin with different weights
    const DataParallel parallel(*net, group, options);
    const auto optimizer = optimizer_of(*net, sgd);
    for (int step = 0; step < kUserSteps; ++step) {
      optimizer->zero_grad();
      const std::int64_t each = kUserBatch / ranks / microbatches;
      at::Tensor sum = at::zeros({1}, at::kDouble);
      for (int m = 0; m < microbatches; ++m) {
        const at::Tensor x = batch_of(step).narrow(0, (group.rank() * microbatches + m) * each, each);
        at::Tensor loss = mean_loss(*net, x) / microbatches;
        if (options.gradients == GradientScale::sum) loss = loss / ranks;
        std::optional<DataParallel::NoSync> alone;
        if (m + 1 < microbatches) alone.emplace(parallel);
        loss.backward();
        sum += loss.detach();
      }
      optimizer->step();
      const bool mean = options.gradients == GradientScale::mean;
      const at::Tensor total = group.all_reduce(sum, mean ? Reduce::avg : Reduce::sum).wait();
      if (group.rank() != 0) continue;
      out.losses.push_back(total.item<double>());
      note(out, *net, step);
    }
    for (const auto& parameter : net->named_parameters()) {
      const at::Tensor first = group.broadcast_(parameter.value().detach().clone(), 0).wait();
      EXPECT_TRUE(first.equal(parameter.value())) << parameter.key() << " differs between ranks";
    }
  });
  return out;
}

void expect_near(const Trained& found, const Trained& wanted) {
  ASSERT_EQ(found.losses.size(), wanted.losses.size());
  for (std::size_t i = 0; i < wanted.losses.size(); ++i) EXPECT_NEAR(found.losses[i] / wanted.losses[i], 1, 1e-12) << i;
  for (const auto& [name, gradient] : wanted.gradients) {
    ASSERT_EQ(found.gradients.at(name).defined(), gradient.defined()) << name;
    if (gradient.defined()) {
      EXPECT_LE((found.gradients.at(name) - gradient).norm().item<double>(),
                1e-12 * gradient.norm().item<double>() + 1e-16)
          << name;
    }
  }
  for (const auto& [name, value] : wanted.parameters)
    EXPECT_LE((found.parameters.at(name) - value).norm().item<double>(), 1e-9 * value.norm().item<double>()) << name;
}

const std::map<std::string, Maker> kNets{
    {"perceptron", [](std::uint64_t seed) { return make<Perceptron>(seed); }},
    {"convolutions", [](std::uint64_t seed) { return make<Convolutions>(seed, false); }},
    {"encoder", [](std::uint64_t seed) { return make<Encoder>(seed); }},
    {"tables", [](std::uint64_t seed) { return make<Tables>(seed); }},
};

TEST(DataParallel, EqualsOneProcessOnTheWholeBatch) {
  for (const auto& [name, maker] : kNets) {
    const bool sgd = name == "tables";  // Adam takes no sparse gradients
    const Trained wanted = train_alone(maker, sgd);
    for (const int ranks : {1, 2, 4})
      for (const int microbatches : {1, 2})
        for (const double bucket_mb : {25.0, 1e-4})
          for (const auto gradients : {GradientScale::mean, GradientScale::sum}) {
            SCOPED_TRACE(text(name, " ranks ", ranks, " microbatches ", microbatches, " bucket ", bucket_mb));
            expect_near(
                train_parallel(maker, sgd, ranks, microbatches, {.bucket_mb = bucket_mb, .gradients = gradients}),
                wanted);
          }
  }
}

/// Which is what makes the test above see parameters that a rank, or no rank, uses.
TEST(DataParallel, SomeRanksUseOtherParameters) {
  const Maker& maker = kNets.at("tables");
  const Trained alone = train_alone(maker, true);
  EXPECT_FALSE(alone.gradients.at("never.weight").defined());
  int without = 0;
  for (std::int64_t sample = 0; sample < kUserBatch; ++sample) {
    const auto net = maker(1);
    mean_loss(*net, batch_of(0).narrow(0, sample, 1)).backward();
    without += !net->named_parameters()["odd.weight"].grad().defined();
  }
  EXPECT_GT(without, 0);
  EXPECT_LT(without, kUserBatch);
}

TEST(DataParallel, BucketsAreSentDuringBackward) {
  run_ranks(2, [](Group& group) {
    const auto net = make<Perceptron>(1);
    const DataParallel parallel(*net, group, {.bucket_mb = 1e-6});
    mean_loss(*net, batch_of(0)).backward();
    EXPECT_EQ(parallel.sent_during_backward(), 4) << "weight and bias of two layers";
  });
}

/// Every rank normalises by its own statistics, as in DistributedDataParallel; the running ones are kept alike.
TEST(DataParallel, StatisticsOfBatchNorms) {
  const Maker maker = [](std::uint64_t seed) { return make<Convolutions>(seed, true); };
  for (const BufferSync sync : {BufferSync::broadcast, BufferSync::average, BufferSync::local})
    run_ranks(2, [&](Group& group) {
      const auto part = [&](int rank) { return batch_of(0).narrow(0, rank * kUserBatch / 2, kUserBatch / 2); };
      const auto net = maker(static_cast<std::uint64_t>(group.rank()));
      net->buffers()[0].fill_(group.rank());
      const DataParallel parallel(*net, group, {.buffers = sync});
      EXPECT_EQ(net->named_buffers()["norm.running_mean"].sum().item<double>(), 0) << "that of rank 0";
      at::Tensor means[2];
      for (const int rank : {0, 1}) {
        const auto other = maker(0);
        other->named_buffers()["norm.running_mean"].zero_();
        other->forward(part(rank));
        means[rank] = other->named_buffers()["norm.running_mean"];
      }
      EXPECT_FALSE(means[0].equal(means[1]));
      mean_loss(*net, part(group.rank())).backward();
      const at::Tensor wanted = sync == BufferSync::broadcast ? means[0]
                                : sync == BufferSync::average ? (means[0] + means[1]) / 2
                                                              : means[group.rank()];
      EXPECT_TRUE(net->named_buffers()["norm.running_mean"].allclose(wanted, 1e-13, 1e-15));
      EXPECT_EQ(net->named_buffers()["norm.num_batches_tracked"].item<std::int64_t>(), 1);
    });
}

/// SyncBatchNorm alone is torch's BatchNorm; over ranks it is that of the whole batch, with its running statistics.
TEST(DataParallel, SyncBatchNorm) {
  const Maker synchronized = [](std::uint64_t seed) { return make<Synchronized>(seed); };
  const Trained plain = train_alone([](std::uint64_t seed) { return make<Convolutions>(seed, true); }, false);
  expect_near(train_alone(synchronized, false), plain);
  for (const int ranks : {1, 2, 4}) expect_near(train_parallel(synchronized, false, ranks, 1, {}), plain);

  const auto alone = make<Convolutions>(1, true);
  alone->forward(batch_of(0));
  run_ranks(2, [&](Group& group) {  // parts of 3 and 5 samples
    const auto net = make<Synchronized>(1);
    const DataParallel parallel(*net, group);
    const at::Tensor y = net->forward(batch_of(0).split_with_sizes({3, 5})[static_cast<std::size_t>(group.rank())]);
    y.sum().backward();
    for (const char* name : {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"})
      EXPECT_TRUE(net->named_buffers()[name].allclose(alone->named_buffers()[name], 1e-12, 1e-14)) << name;
  });
}

/// As torch's batch norms; over ranks the values of all of them count, and a rank that does not count has none.
TEST(DataParallel, SyncBatchNormNeedsAVariance) {
  SyncBatchNorm alone(3);
  const char* told = "1 value per feature in training";
  EXPECT_THAT(message_of<ConfigError>([&] { alone->forward(at::ones({1, 3})); }), HasSubstr(told));
  alone->eval();
  alone->forward(at::ones({1, 3}));
  run_ranks(2, [&](Group& group) {
    SyncBatchNorm norm(3);
    norm->set_group(&group);
    EXPECT_TRUE(norm->forward(at::full({1, 3}, group.rank() + 1.0F)).isfinite().all().item<bool>());
    norm->set_counted(group.rank() == 0);
    EXPECT_THAT(message_of<ConfigError>([&] { norm->forward(at::ones({1, 3})); }), HasSubstr(told));
    const at::Tensor before = norm->running_mean.clone();
    norm->forward(group.rank() == 0 ? at::ones({2, 3}) : at::full({1, 3}, 1e6F));
    EXPECT_TRUE(norm->running_mean.allclose(before * 0.9 + 0.1));
  });
}

TEST(DataParallel, ModulesThatDifferAreNamed) {
  run_ranks(3, [](Group& group) {
    const auto net = make<Perceptron>(1, group.rank() == 2 ? 17 : 16);
    EXPECT_THAT(
        message_of<ConfigError>([&] { static_cast<void>(DataParallel(*net, group)); }),
        HasSubstr("rank 2 of world{0,1,2} has a different module than rank 0: first.weight [17, 8] Double trained"));
  });
  run_ranks(1, [](Group& group) {
    torch::nn::Module empty;
    EXPECT_THAT(message_of<ConfigError>([&] { static_cast<void>(DataParallel(empty, group)); }),
                HasSubstr("no parameter"));
  });
}

TEST(DataParallel, AModuleMayBeOnTheStack) {
  run_ranks(2, [](Group& group) {
    torch::nn::EmbeddingImpl table(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    const DataParallel parallel(table, group);
    table.forward(at::tensor({group.rank()}, at::kLong)).sum().backward();
    EXPECT_TRUE(table.weight.grad().to_dense().equal(
        at::tensor({0.5F, 0.5F, 0.5F, 0.5F, 0.0F, 0.0F, 0.0F, 0.0F}).view({4, 2})));
  });
}

TEST(DataParallel, AfterItsEndGradientsAreLocal) {
  run_ranks(2, [](Group& group) {
    const auto net = make<Perceptron>(1);
    {
      const DataParallel parallel(*net, group);
    }
    mean_loss(*net, batch_of(group.rank())).backward();
    const at::Tensor own = net->parameters()[0].grad();
    EXPECT_FALSE(group.all_reduce(own.contiguous(), Reduce::avg).wait().equal(own));
  });
}

}  // namespace
}  // namespace trireme
