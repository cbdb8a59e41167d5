#include "trireme/parallel/expert/experts.hpp"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/layout/context_split.hpp"
#include "trireme/parallel/expert/pooled_balance.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kSampleTokens = 4, kExpertTokens = 4 * kSampleTokens;  // of all ranks
constexpr std::int64_t kExpertFeatures = 6, kHidden = 8, kSharedHidden = 12, kNumExperts = 4;
constexpr double kAuxiliaryFactor = 0.3;

struct ExpertLayout {
  Degrees degrees;
  int ep = 1, etp = 1;
  bool sequence_parallel = false;
  std::string str() const {
    return text("dp ", degrees.dp, " cp ", degrees.cp, " tp ", degrees.tp, " ep ", ep, " expert tp ", etp,
                sequence_parallel ? " sp" : "");
  }
};

struct MixtureOutcome {
  at::Tensor y, dx, losses;
  Gradients gradients;
};

/// The formula, one token and expert after the other, on full weights.
MixtureOutcome plain_mixture(const RouterOptions& options, const at::Tensor& x0, const at::Tensor& dy,
                             Gradients weights) {
  for (auto& [name, weight] : weights) weight = weight.detach().clone().set_requires_grad(true);
  const at::Tensor x = x0.clone().set_requires_grad(true);
  const at::Tensor logits = x.matmul(weights.at("router.weight").t());
  const at::Tensor scores = options.scores == RouterScores::softmax ? logits.softmax(1) : logits.sigmoid();
  const double most =
      std::ceil(options.capacity_factor * static_cast<double>(options.top_k * kSampleTokens) / kNumExperts);
  std::vector<at::Tensor> rows;
  at::Tensor counts;  // of the sample so far
  at::Tensor losses = options.z_loss * logits.logsumexp(1).square().sum();
  for (std::int64_t t = 0; t < x.size(0); ++t) {
    if (t % kSampleTokens == 0) counts = at::zeros({kNumExperts}, at::kDouble);
    const at::Tensor chosen = std::get<1>(
        (options.selection_bias ? scores[t] + weights.at("router.selection_bias") : scores[t]).topk(options.top_k));
    const at::Tensor weight = scores[t].index_select(0, chosen);
    at::Tensor sum = at::zeros({x.size(1)}, at::kDouble);
    for (std::int64_t i = 0; i < options.top_k; ++i) {
      const auto e = chosen[i].item<std::int64_t>();
      counts[e] += 1;
      if (most > 0 && counts[e].item<double>() > most) continue;
      const at::Tensor both = weights.at("expert_gate_up")[e].matmul(x[t]);
      const at::Tensor hidden = at::silu(both.narrow(0, 0, kHidden)) * both.narrow(0, kHidden, kHidden);
      const at::Tensor share = options.normalised ? weight[i] / weight.sum() : weight[i];
      sum = sum + options.scale * share * weights.at("expert_down")[e].matmul(hidden);
    }
    if (weights.contains("shared.down.weight")) {
      const at::Tensor both = weights.at("shared.gate_up.weight").matmul(x[t]);
      sum =
          sum + weights.at("shared.down.weight")
                    .matmul(at::silu(both.narrow(0, 0, kSharedHidden)) * both.narrow(0, kSharedHidden, kSharedHidden));
    }
    rows.push_back(sum);
    if (t % kSampleTokens + 1 < kSampleTokens) continue;
    const at::Tensor fractions = counts / static_cast<double>(options.top_k * kSampleTokens);
    const at::Tensor shares = scores.narrow(0, t + 1 - kSampleTokens, kSampleTokens);
    losses = losses + options.balance * kNumExperts * (fractions * shares / shares.sum(1, true)).sum();
  }
  MixtureOutcome out{.y = at::stack(rows), .dx = {}, .losses = losses.detach(), .gradients = {}};
  ((out.y * dy).sum() + kAuxiliaryFactor * losses).backward();
  out.dx = x.grad();
  for (const auto& [name, weight] : weights)
    out.gradients[name] = weight.grad().defined() ? weight.grad() : at::zeros_like(weight);
  return out;
}

Gradients full_values(const torch::nn::Module& module, Mesh& mesh) {
  Gradients out;
  for (const Param& param : params_of(module))
    out[param.name] = gather_full_tensor(param.value.detach(), param.spec, mesh).value;
  return out;
}

void expect_equals_the_formula(const RouterOptions& options, const ExpertLayout& layout, bool crowded,
                               bool shared = false, bool without_counts = false) {
  SCOPED_TRACE(layout.str());
  // Crowded: all tokens are alike, so that most experts have none.
  const at::Tensor random = normal_tensor({kExpertTokens, kExpertFeatures}, 1, "x");
  const at::Tensor x0 = crowded ? random.narrow(0, 0, 1) + 1e-3 * random : random,
                   dy0 = normal_tensor({kExpertTokens, kExpertFeatures}, 2, "dy");
  const Grid dense = Grid::dense(layout.degrees);
  run_ranks(dense.size(), [&](World& world) {
    Mesh mesh(dense, world, {}, expert_view(dense, layout.ep, layout.etp));
    const InitScope f64(at::kCPU, at::kDouble);
    const Parallel parallel{mesh, layout.sequence_parallel};
    ExpertMlp layer(options, kHidden, parallel, shared ? kSharedHidden : 0);
    fill(layer, mesh);
    if (without_counts) layer.exchange_without_counts();
    if (options.selection_bias) layer.router()->selection_bias_E.copy_(at::arange(kNumExperts, at::kDouble) * 0.2);
    const MixtureOutcome wanted = plain_mixture(options, x0, dy0, full_values(layer, mesh));
    const std::int64_t rows = kExpertTokens / layout.degrees.dp;
    const ContextSplit split{.cp = layout.degrees.cp};
    const std::vector<Range> positions = split.tokens(kSampleTokens, mesh.coord(Axis::cp));
    const auto own = [&](const at::Tensor& all) {
      const at::Tensor samples = all.narrow(0, mesh.coord(Axis::dp) * rows, rows).unflatten(0, {-1, kSampleTokens});
      return parallel.own_tokens(select_tokens(samples, positions).flatten(0, 1)).clone();
    };
    ForwardContext context = part_of_samples(whole_samples(rows / kSampleTokens, kSampleTokens), positions);
    at::Tensor losses = at::zeros({1}, at::kDouble);
    context.auxiliary_factor = kAuxiliaryFactor;
    context.auxiliary_loss = [&](const at::Tensor& sum) { losses += sum; };
    const at::Tensor x = own(x0).set_requires_grad(true), y = layer.forward(x, context);
    const auto is_near = [](const at::Tensor& a, const at::Tensor& b) {  // also if b is zero
      return (a - b).norm().item<double>() <= 1e-13 * b.norm().item<double>() + 1e-16;
    };
    EXPECT_TRUE(is_near(y, own(wanted.y)));
    if (options.balance > 0) {
      EXPECT_LT(relative(mesh.world_group().all_reduce(losses).wait()[0], wanted.losses), 1e-13);
    }
    y.backward(own(dy0));
    EXPECT_TRUE(is_near(x.grad(), own(wanted.dx)));
    const std::vector<Param> params = params_of(layer);
    sum_partial_gradients(params, mesh);
    for (const Param& param : params) {
      if (!param.value.requires_grad()) continue;
      ASSERT_TRUE(param.value.grad().defined()) << param.name << ": also without a token";
      const AxisSet sum_axes = mesh.params().sum_axes(param.spec);
      const at::Tensor summed =
          mesh.group(param.spec.placement.view, sum_axes).all_reduce(param.value.grad().contiguous()).wait();
      const FullTensor whole = gather_full_tensor(summed, param.spec, mesh);
      EXPECT_LE((whole.value - wanted.gradients.at(param.name)).norm().item<double>(),
                1e-12 * wanted.gradients.at(param.name).norm().item<double>() + 1e-14)
          << param.name;
    }
  });
}

TEST(ExpertMlp, EqualsTheFormulaOnEveryLayout) {
  const RouterOptions options{.features = kExpertFeatures, .experts = kNumExperts, .top_k = 2};
  for (const bool crowded : {false, true})
    for (const ExpertLayout& layout : std::vector<ExpertLayout>{{{}, 1, 1},
                                                                {{.dp = 2}, 2, 1},
                                                                {{.dp = 4}, 4, 1},
                                                                {{.dp = 4}, 2, 1},
                                                                {{.tp = 2}, 1, 2},
                                                                {{.tp = 2}, 1, 2, true},
                                                                {{.dp = 2, .tp = 2}, 2, 2},
                                                                {{.dp = 2, .tp = 2}, 2, 2, true},
                                                                {{.tp = 2}, 2, 1},
                                                                {{.dp = 2, .tp = 2}, 4, 1},
                                                                {{.dp = 2, .tp = 2}, 4, 1, true},
                                                                {{.dp = 2, .tp = 2}, 2, 1, true},
                                                                {{.dp = 1, .tp = 4}, 2, 2}})
      expect_equals_the_formula(options, layout, crowded);
}

/// Both are defined for samples, whose tokens may be on several ranks.
TEST(ExpertMlp, CapacityAndAuxiliaryLossesAreTheSameOnEveryLayout) {
  const RouterOptions options{.features = kExpertFeatures,
                              .experts = kNumExperts,
                              .top_k = 2,
                              .capacity_factor = 1,
                              .balance = 0.7,
                              .z_loss = 0.2};
  for (const ExpertLayout& layout : std::vector<ExpertLayout>{{{}, 1, 1},
                                                              {{.dp = 4}, 4, 1},
                                                              {{.cp = 2}, 2, 1},
                                                              {{.dp = 2, .cp = 2}, 2, 1},
                                                              {{.dp = 2, .tp = 2}, 2, 2},
                                                              {{.dp = 2, .tp = 2}, 2, 2, true},
                                                              {{.cp = 2, .tp = 2}, 2, 2, true},
                                                              {{.cp = 2, .tp = 2}, 4, 1},
                                                              {{.cp = 2, .tp = 2}, 4, 1, true},
                                                              {{.dp = 1, .tp = 4}, 2, 2}})
    for (const bool without_counts : {false, true})
      expect_equals_the_formula(options, layout, false, false, without_counts);
  RouterOptions narrow = options;
  narrow.capacity_factor = 0.5;  // most choices are not kept
  for (const bool crowded : {false, true})
    expect_equals_the_formula(narrow, {{.dp = 2, .cp = 2}, 2, 1}, crowded, false, true);
}

TEST(ExpertMlp, EveryKindOfScores) {
  for (const RouterScores scores : {RouterScores::softmax, RouterScores::sigmoid})
    for (const bool normalised : {false, true})
      for (const std::int64_t top_k : {1, 3, 4})
        expect_equals_the_formula({.features = kExpertFeatures,
                                   .experts = kNumExperts,
                                   .top_k = top_k,
                                   .scores = scores,
                                   .normalised = normalised,
                                   .scale = 2.5},
                                  {{.dp = 2}, 2, 1}, false);
  for (const RouterScores scores : {RouterScores::softmax, RouterScores::sigmoid})
    expect_equals_the_formula(
        {.features = kExpertFeatures, .experts = kNumExperts, .top_k = 2, .scores = scores, .selection_bias = true},
        {{.dp = 2}, 2, 1}, false);
  on_tp(1, [](Mesh& mesh) { EXPECT_THROW(Router({.features = 4, .experts = 2, .top_k = 3}, mesh, 1), ConfigError); });
}

TEST(ExpertMlp, ASharedExpertSeesEveryToken) {
  for (const ExpertLayout& layout : std::vector<ExpertLayout>{{{.dp = 2}, 2, 1},
                                                              {{.tp = 2}, 1, 2},
                                                              {{.dp = 2, .tp = 2}, 2, 2, true},
                                                              {{.dp = 2, .tp = 2}, 4, 1},
                                                              {{.dp = 2, .tp = 2}, 4, 1, true}})
    expect_equals_the_formula({.features = kExpertFeatures, .experts = kNumExperts, .top_k = 2}, layout, false, true);
}

/// Two all-to-alls of rows forward and two backward, and one of counts. Every token visits every expert, so that the
/// choices are spread evenly.
TEST(ExpertMlp, BytesOnTheWire) {
  for (const int ep : {2, 4}) {
    const Grid dense = Grid::dense({.dp = ep});
    run_ranks(ep, [&](World& world) {
      Mesh mesh(dense, world, {}, expert_view(dense, ep));
      const InitScope f64(at::kCPU, at::kDouble);
      const Parallel parallel{mesh};
      ExpertMlp layer({.features = kExpertFeatures, .experts = kNumExperts, .top_k = kNumExperts}, kHidden, parallel);
      fill(layer, mesh);
      const at::Tensor x = normal_tensor({kExpertTokens, kExpertFeatures}, 1, "x").set_requires_grad(true);
      const std::int64_t before = parallel.ep.traffic().bytes;
      const at::Tensor y = layer.forward(x, whole_samples(kExpertTokens / kSampleTokens, kSampleTokens));
      const std::int64_t rows = kExpertTokens * kNumExperts * kExpertFeatures * 8 * (ep - 1) / ep;
      const std::int64_t counts = kNumExperts * 8 * (ep - 1) / ep;
      EXPECT_EQ(parallel.ep.traffic().bytes - before, counts + 2 * rows);
      y.sum().backward();
      EXPECT_EQ(parallel.ep.traffic().bytes - before, counts + 4 * rows);
    });
  }
}

/// A rank with a part of each sample sends the rows that it has: not as many as one with whole samples, padded.
TEST(ExpertMlp, RowsOfPartsOfSamplesAreNotPadded) {
  const auto bytes_with = [](bool as_on_a_gpu, int cp) {
    std::int64_t bytes = 0;
    const Grid dense = Grid::dense({.dp = 2 / cp, .cp = cp});
    run_ranks(2, [&](World& world) {
      Mesh mesh(dense, world, {}, expert_view(dense, 2));
      const InitScope f64(at::kCPU, at::kDouble);
      const Parallel parallel{mesh};
      ExpertMlp layer({.features = kExpertFeatures, .experts = kNumExperts, .top_k = 2, .capacity_factor = 1}, kHidden,
                      parallel);
      fill(layer, mesh);
      if (as_on_a_gpu) layer.exchange_without_counts();
      const ContextSplit split{.cp = cp};
      const std::int64_t rows = kExpertTokens / 2 * cp;  // of the samples of this rank
      const ForwardContext context = part_of_samples(whole_samples(rows / kSampleTokens, kSampleTokens),
                                                     split.tokens(kSampleTokens, mesh.coord(Axis::cp)));
      const std::int64_t before = parallel.ep.traffic().bytes;
      layer.forward(normal_tensor({kExpertTokens / 2, kExpertFeatures}, 1, "x"), context);
      if (world.rank() == 0) bytes = parallel.ep.traffic().bytes - before;
    });
    return bytes;
  };
  EXPECT_EQ(bytes_with(true, 2), bytes_with(false, 2));
  EXPECT_NE(bytes_with(true, 1), bytes_with(false, 1)) << "counts are sent in both cases";
}

ForwardContext whole_context(double factor) {
  ForwardContext context = whole_samples(kExpertTokens / kSampleTokens, kSampleTokens);
  context.auxiliary_factor = factor;
  return context;
}

/// Two layers on one rank, against the formula of transformers.
TEST(Router, TheBalanceOverAllLayersIsThatOfTransformers) {
  on_tp(1, [](Mesh& mesh) {
    const RouterOptions options{.features = kExpertFeatures,
                                .experts = kNumExperts,
                                .top_k = 2,
                                .balance = 0.7,
                                .balance_over = BalanceOver::pooled};
    Router first(options, mesh, 1), second(options, mesh, 1);
    init_parameters(first, mesh, {.seed = 7, .scheme = InitScheme::plain});
    init_parameters(second, mesh, {.seed = 8, .scheme = InitScheme::plain});
    const at::Tensor x = normal_tensor({kExpertTokens, kExpertFeatures}, 1, "x");
    at::Tensor counts = at::zeros({kNumExperts}, at::kDouble), sums = counts;
    for (Router* router : {&first, &second}) {
      const at::Tensor scores = x.matmul(router->weight_ED.t()).softmax(1);
      counts = counts + at::bincount(std::get<1>(scores.topk(2)).flatten(), {}, kNumExperts);
      sums = sums + scores.sum(0);
    }
    const at::Tensor wanted = 0.7 * kNumExperts * (counts / (2 * kExpertTokens) * sums / (2 * kExpertTokens)).sum();
    wanted.backward();
    const std::vector<at::Tensor> gradients{first.weight_ED.grad().clone(), second.weight_ED.grad().clone()};
    first.zero_grad();
    second.zero_grad();

    ForwardContext context = whole_context(1.0 / kExpertTokens);
    context.pooled_balance = std::make_shared<PooledBalance>(0.7, 2, mesh.world_group(), 1);
    at::Tensor reported;
    context.auxiliary_loss = [&](const at::Tensor& sum) { reported = sum / kExpertTokens; };
    const at::Tensor index = at::arange(kExpertTokens);
    const RoutedTokens tokens{.samples_T = index.floor_divide(kSampleTokens),
                              .positions_T = index.remainder(kSampleTokens),
                              .num_samples = kExpertTokens / kSampleTokens,
                              .sample_length = kSampleTokens,
                              .own_length = kSampleTokens};
    const at::Tensor a = first.forward(x, tokens, context).weights_Tk,
                     b = second.forward(x, tokens, context).weights_Tk;
    (0 * a.sum() + 0 * b.sum()).backward();
    EXPECT_LT(relative(reported, wanted.detach()), 1e-14);
    EXPECT_LT(relative(first.weight_ED.grad(), gradients[0]), 1e-13);
    EXPECT_LT(relative(second.weight_ED.grad(), gradients[1]), 1e-13);
  });
}

TEST(Router, ABiasFollowsTheLoad) {
  for (const int dp : {1, 2}) {
    const Grid dense = Grid::dense({.dp = dp});
    run_ranks(dp, [&](World& world) {
      Mesh mesh(dense, world, {}, expert_view(dense, 1));
      const InitScope f32(at::kCPU, at::kBFloat16);
      const auto router = std::make_shared<Router>(
          RouterOptions{.features = 2, .experts = 3, .top_k = 1, .selection_bias = true}, mesh, 1);
      EXPECT_EQ(router->selection_bias_E.scalar_type(), at::kFloat) << "small steps are lost in bf16";
      {
        const at::NoGradGuard no_grad;
        router->weight_ED.copy_(at::tensor({1.0, 0.0, 0.0, 1.0, -1.0, -1.0}).view({3, 2}));
        router->selection_bias_E.zero_();
      }
      // Over all ranks expert 0 has 4 tokens, expert 1 has 2, expert 2 none.
      const at::Tensor all =
          at::tensor({2.0, 0.0, 2.0, 0.0, 0.0, 2.0, 2.0, 0.0, 2.0, 0.0, 0.0, 2.0}).view({6, 2}).to(at::kBFloat16);
      const at::Tensor x = all.narrow(0, mesh.rank() * 6 / dp, 6 / dp);
      const at::Tensor index = at::arange(x.size(0));
      const RoutedTokens tokens{.samples_T = at::zeros_like(index),
                                .positions_T = index,
                                .num_samples = 1,
                                .sample_length = x.size(0),
                                .own_length = x.size(0)};
      ForwardContext context = whole_samples(1, x.size(0));
      router->forward(x, tokens, context);
      context.chosen_experts = std::make_shared<at::Tensor>(at::zeros({x.size(0), 1}, at::kLong));
      router->forward(x, tokens, context);  // recomputed: not counted again
      context.training = false;
      router->forward(x, tokens, context);
      update_selection_biases({router}, mesh, 0.25);
      EXPECT_TRUE(router->selection_bias_E.equal(at::tensor({-0.25F, 0.0F, 0.25F}))) << router->selection_bias_E;
      update_selection_biases({router}, mesh, 0.25);
      EXPECT_TRUE(router->selection_bias_E.equal(at::tensor({-0.25F, 0.0F, 0.25F}))) << "no tokens since";
    });
  }
}

/// Another choice in the recomputed forward would be for other weights than those that the output was made with.
TEST(Router, ARecomputedForwardTakesTheSameExperts) {
  on_tp(1, [](Mesh& mesh) {
    Router router({.features = kExpertFeatures, .experts = kNumExperts, .top_k = 2}, mesh, 1);
    fill(router, mesh);
    const at::Tensor x = normal_tensor({kExpertTokens, kExpertFeatures}, 1, "x");
    const at::Tensor index = at::arange(kExpertTokens);
    const RoutedTokens tokens{.samples_T = at::zeros_like(index),
                              .positions_T = index,
                              .num_samples = 1,
                              .sample_length = kExpertTokens,
                              .own_length = kExpertTokens};
    ForwardContext context = whole_context(0);
    context.chosen_experts = std::make_shared<at::Tensor>();
    const at::Tensor first = router.forward(x, tokens, context).experts_Tk;
    EXPECT_TRUE(router.forward(-x, tokens, context).experts_Tk.equal(first));
    context.chosen_experts.reset();
    EXPECT_FALSE(router.forward(-x, tokens, context).experts_Tk.equal(first));
  });
}

}  // namespace
}  // namespace trireme
