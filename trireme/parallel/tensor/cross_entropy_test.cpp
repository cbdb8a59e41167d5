#include "trireme/parallel/tensor/cross_entropy.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/parallel/tensor/embedding.hpp"
#include "trireme/parallel/tensor/linear.hpp"
#include "trireme/parallel/tensor/sampler.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kHeadTokens = 24, kWidth = 8;

at::Tensor some_targets(std::int64_t entries) {
  at::Tensor targets = at::remainder(at::arange(kHeadTokens) * 11, entries);
  targets[0] = entries - 1;            // the last entry, next to the padding
  targets[1] = (entries + 1) / 2 - 1;  // both sides of the border between two shards
  targets[2] = (entries + 1) / 2;
  targets.narrow(0, 20, 3).fill_(-100);
  return targets;
}

/// The loss of PyTorch on full logits.
at::Tensor plain_loss(const at::Tensor& product, const at::Tensor& targets, const CrossEntropyOptions& o) {
  const at::Tensor logits = o.softcap > 0 ? o.softcap * (product / o.softcap).tanh() : product;
  at::Tensor loss = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum, o.ignore_index, o.label_smoothing);
  const at::Tensor counts = targets.ne(o.ignore_index).to(logits.dtype());
  return loss + (o.z_loss * logits.logsumexp(1).square() * counts).sum();
}

TEST(ShardedCrossEntropy, EqualsPyTorchOnWholeLogits) {
  for (const auto& [entries, width] :
       {std::pair<std::int64_t, std::int64_t>{37, 8}, {64, 8}, {5, 8}, {37, 32}, {5, 32}})
    for (const CrossEntropyOptions& o :
         {CrossEntropyOptions{}, CrossEntropyOptions{.label_smoothing = 0.1, .tile_tokens = 7},
          CrossEntropyOptions{.z_loss = 1e-2, .tile_tokens = 1}, CrossEntropyOptions{.softcap = 0.5, .tile_tokens = 7},
          CrossEntropyOptions{.label_smoothing = 0.1, .softcap = 2},
          CrossEntropyOptions{.softcap = 0.5, .tile_tokens = 7, .gradients_in_backward = true},
          CrossEntropyOptions{.ignore_index = 3, .tile_tokens = 24}})
      for (const int ranks : {1, 2, 4})
        for (const bool sequence_parallel : {false, true})
          on_tp(ranks, [&, entries = entries, width = width](Mesh& mesh) {
            const Parallel parallel{mesh, sequence_parallel};
            ColumnLinear head(width, entries, parallel, {.padded = true});
            fill(head, mesh);
            const at::Tensor targets =
                o.ignore_index == -100 ? some_targets(entries) : some_targets(entries).clamp_min(0);
            const at::Tensor x0 = 3 * normal_tensor({kHeadTokens, width}, 1, "x");
            const at::Tensor x = parallel.own_tokens(x0).clone().set_requires_grad(true);
            const LossSum sum = sharded_cross_entropy(x, head.weight_fD, targets, entries, parallel, o);
            (sum.loss * 0.25).backward();
            const Gradients grads = whole_gradients(head, mesh);

            const FullTensor weight = gather_full_tensor(head.weight_fD, params_of(head)[0].spec, mesh);
            const at::Tensor w = weight.value.clone().set_requires_grad(true), xw = x0.clone().set_requires_grad(true);
            const at::Tensor wanted = plain_loss(at::mm(xw, w.t()), targets, o);
            (wanted * 0.25).backward();
            EXPECT_LT(relative(sum.loss, wanted), 1e-13);
            EXPECT_EQ(sum.count.item<std::int64_t>(), targets.ne(o.ignore_index).sum().item<std::int64_t>());
            EXPECT_LT(relative(x.grad(), parallel.own_tokens(xw.grad())), 1e-12);
            EXPECT_LT(relative(grads.at("weight"), w.grad()), 1e-12);
            const at::NoGradGuard off;
            EXPECT_EQ(sharded_cross_entropy(x, head.weight_fD, targets, entries, parallel, o).loss.item<double>(),
                      sum.loss.item<double>());
          });
}

TEST(ShardedCrossEntropy, OfAFrozenHead) {
  for (const int ranks : {1, 2})
    for (const bool later : {false, true})
      for (const std::int64_t tile : {7, 512})
        on_tp(ranks, [&](Mesh& mesh) {
          const Parallel parallel{mesh};
          ColumnLinear head(32, 37, parallel, {.padded = true});
          fill(head, mesh);
          const CrossEntropyOptions o{.tile_tokens = tile, .gradients_in_backward = later};
          const auto dx_of = [&](bool trained) {
            head.weight_fD.set_requires_grad(trained);
            head.zero_grad();
            const at::Tensor x = normal_tensor({kHeadTokens, 32}, 1, "x").set_requires_grad(true);
            sharded_cross_entropy(x, head.weight_fD, some_targets(37), 37, parallel, o).loss.backward();
            return x.grad();
          };
          const at::Tensor wanted = dx_of(true);
          EXPECT_TRUE(dx_of(false).equal(wanted));
          EXPECT_FALSE(head.weight_fD.grad().defined() && head.weight_fD.grad().ne(0).any().item<bool>());
        });
}

/// On every rank the head has more rows than entries, here large ones: no loss, logit, sample or gradient changes, and
/// the gradient of the rows themselves is zero.
TEST(ShardedCrossEntropy, PaddingTakesNoPartOnAnyRank) {
  constexpr std::int64_t kEntries = 37;
  for (const int ranks : {1, 2, 4})
    for (const bool later : {false, true})
      for (const std::int64_t tile : {7, 512})
        on_tp(ranks, [&](Mesh& mesh) {
          const Parallel parallel{mesh};
          const CrossEntropyOptions o{
              .label_smoothing = 0.1, .z_loss = 0.01, .tile_tokens = tile, .gradients_in_backward = later};
          ColumnLinear head(32, kEntries, parallel, {.padded = true});
          fill(head, mesh);
          const std::int64_t own = vocabulary_range(kEntries, parallel.tp).size(), padding = 128 - own;
          ASSERT_EQ(head.weight_fD.size(0), 128);
          const at::Tensor x0 = normal_tensor({kHeadTokens, 32}, 1, "x");
          struct Result {
            at::Tensor loss, dx, dweight, logits, shard, token;
          };
          const auto result = [&] {
            head.zero_grad();
            const at::Tensor x = x0.clone().set_requires_grad(true);
            const LossSum sum = sharded_cross_entropy(x, head.weight_fD, some_targets(kEntries), kEntries, parallel, o);
            sum.loss.backward();
            const at::NoGradGuard off;
            const at::Tensor shard = sharded_logits(x0, head.weight_fD, kEntries, parallel);
            return Result{
                .loss = sum.loss.detach(),
                .dx = x.grad(),
                .dweight = head.weight_fD.grad().clone(),
                .logits = full_logits(x0, head.weight_fD, kEntries, parallel),
                .shard = shard,
                .token = sample(shard, kEntries, parallel.tp, {.temperature = 0}, at::arange(kHeadTokens), 0)};
          };
          const Result before = result();
          const FullTensor weight = gather_full_tensor(head.weight_fD, params_of(head)[0].spec, mesh);
          EXPECT_LT(relative(before.logits, at::mm(x0, weight.value.t())), 1e-14);
          EXPECT_TRUE(before.token.equal(before.logits.argmax(1)));
          EXPECT_EQ(before.shard.size(1), own);
          EXPECT_TRUE(before.dweight.narrow(0, own, padding).eq(0).all().item<bool>());
          EXPECT_TRUE(before.dweight.narrow(0, 0, own).ne(0).all().item<bool>());
          {
            const at::NoGradGuard off;
            head.weight_fD.narrow(0, own, padding).fill_(1e6);
          }
          const Result after = result();
          EXPECT_TRUE(after.loss.equal(before.loss));
          EXPECT_TRUE(after.dx.equal(before.dx));
          EXPECT_TRUE(after.dweight.equal(before.dweight));
          EXPECT_TRUE(after.logits.equal(before.logits));
          EXPECT_TRUE(after.token.equal(before.token));
        });
}

TEST(ShardedCrossEntropy, RowsBeyondTheVocabularyTakeNoPart) {
  on_tp(2, [&](Mesh& mesh) {
    const Parallel parallel{mesh};
    ColumnLinear head(kWidth, 5, parallel, {.padded = true});
    fill(head, mesh);
    const at::Tensor x = at::ones({1, kWidth}, at::kDouble), target = at::zeros({1}, at::kLong);
    const double before = sharded_cross_entropy(x, head.weight_fD, target, 5, parallel).loss.item<double>();
    {
      const at::NoGradGuard off;
      if (mesh.rank() == 1)
        head.weight_fD.select(0, 2).fill_(1e6);  // entry 5 of 5: padding, and by far the largest logit
    }
    EXPECT_EQ(sharded_cross_entropy(x, head.weight_fD, target, 5, parallel).loss.item<double>(), before);
    EXPECT_EQ(full_logits(x, head.weight_fD, 5, parallel).size(1), 5);
    const Range own = vocabulary_range(5, parallel.tp);
    const at::Tensor logits = at::mm(x, head.weight_fD.narrow(0, 0, own.size()).t());
    EXPECT_LT(sample(logits, 5, parallel.tp, {.temperature = 0}, at::zeros({1}, at::kLong), 0).item<std::int64_t>(), 5);
  });
}

TEST(Vocabulary, EqualsALookUpOnOneRank) {
  const at::Tensor ids = at::remainder(at::arange(kHeadTokens) * 7, 37);
  Gradients reference;
  for (const int ranks : {1, 2, 4})
    for (const bool sequence_parallel : {false, true})
      on_tp(ranks, [&](Mesh& mesh) {
        const Parallel parallel{mesh, sequence_parallel};
        ParallelVocabulary vocabulary(37, kWidth, parallel);
        fill(vocabulary, mesh);
        const at::Tensor y = vocabulary.forward(ids);
        y.backward(parallel.own_tokens(normal_tensor({kHeadTokens, kWidth}, 1, "dy")));
        const FullTensor weight = gather_full_tensor(vocabulary.weight_vD, params_of(vocabulary)[0].spec, mesh);
        EXPECT_TRUE(y.equal(parallel.own_tokens(at::embedding(weight.value, ids))));
        const Gradients grads = whole_gradients(vocabulary, mesh);
        if (reference.empty()) reference = grads;
        expect_close(grads, reference);
      });
}

TEST(Sampler, SameTokenOnEveryRankAndAsOnOne) {
  constexpr std::int64_t kEntries = 37, kSequences = 6;
  const at::Tensor logits = 2 * normal_tensor({kSequences, kEntries}, 5, "logits");
  const at::Tensor sequences = at::arange(100, 100 + kSequences);
  for (const SamplerOptions& o :
       {SamplerOptions{.temperature = 0}, SamplerOptions{}, SamplerOptions{.temperature = 0.7, .seed = 4},
        SamplerOptions{.top_k = 1}, SamplerOptions{.top_k = 5}, SamplerOptions{.top_p = 0.5},
        SamplerOptions{.temperature = 1.3, .top_k = 9, .top_p = 0.8}, SamplerOptions{.top_k = 100}})
    for (std::int64_t draw = 0; draw < 20; ++draw) {
      at::Tensor one;
      for (const int ranks : {1, 2, 4})
        run_ranks(ranks, [&](Group& tp) {
          const Range own = vocabulary_range(kEntries, tp);
          const at::Tensor mine = logits.narrow(1, own.begin, own.size());
          const at::Tensor token = sample(mine, kEntries, tp, o, sequences, draw);
          if (ranks == 1) one = token;
          EXPECT_TRUE(token.equal(one)) << "rank " << tp.rank() << " of " << ranks;
        });
      const at::Tensor best = logits.argmax(1);
      if (o.temperature == 0 || o.top_k == 1) {
        EXPECT_TRUE(one.equal(best));
      }
      if (o.top_k > 0 && o.top_k < kEntries) {
        const at::Tensor kept = std::get<1>(logits.topk(o.top_k, 1));
        EXPECT_TRUE(kept.eq(one.unsqueeze(1)).any(1).all().item<bool>());
      }
    }
}

TEST(Vocabulary, NumbersOutsideAreNamed) {
  on_tp(2, [&](Mesh& mesh) {
    const Parallel parallel{mesh};
    ParallelVocabulary vocabulary(37, kWidth, parallel);
    fill(vocabulary, mesh);
    for (const std::int64_t wrong : {std::int64_t{37}, std::int64_t{-1}}) {
      at::Tensor ids = at::arange(8);
      ids[5] = wrong;
      try {
        vocabulary.forward(ids);
        FAIL() << wrong << " was taken";
      } catch (const DataError& error) {
        EXPECT_NE(std::string(error.what()).find(text("token ", wrong, " at place 5")), std::string::npos)
            << error.what();
      }
      EXPECT_THROW(sharded_cross_entropy(at::zeros({8, kWidth}, at::kDouble), vocabulary.weight_vD, ids, 37, parallel),
                   DataError);
    }
  });
}

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  const at::Tensor logits = at::tensor({0.0, 1.0, 2.0, -1.0, 0.5}, at::kDouble).unsqueeze(0);
  run_ranks(1, [&](Group& tp) {
    constexpr int kDraws = 20000;
    const auto counts = [&](const SamplerOptions& o) {
      at::Tensor n = at::zeros({5}, at::kDouble);
      for (std::int64_t i = 0; i < kDraws; ++i)
        n[sample(logits, 5, tp, o, at::zeros({1}, at::kLong), i).item<std::int64_t>()] += 1;
      return n / kDraws;
    };
    EXPECT_LT((counts({}) - logits[0].softmax(0)).abs().max().item<double>(), 0.015);
    EXPECT_LT((counts({.temperature = 2}) - (logits[0] / 2).softmax(0)).abs().max().item<double>(), 0.015);
    // Probabilities 0.56, 0.21, 0.12, ...: 0.7 is first reached by the two largest.
    const at::Tensor two = at::tensor({0.0, 1.0, 2.0}, at::kDouble).narrow(0, 1, 2).softmax(0);
    const at::Tensor nucleus = counts({.top_p = 0.7});
    EXPECT_NEAR(nucleus[1].item<double>(), two[0].item<double>(), 0.015);
    EXPECT_NEAR(nucleus[2].item<double>(), two[1].item<double>(), 0.015);
    EXPECT_EQ((nucleus[0] + nucleus[3] + nucleus[4]).item<double>(), 0);
  });
}

TEST(Sampler, OfEqualLogitsTheFirstIsGreedy) {
  for (const int ranks : {1, 2, 4})
    run_ranks(ranks, [&](Group& tp) {
      const Range own = vocabulary_range(9, tp);
      at::Tensor logits = at::zeros({1, 9}, at::kFloat);
      logits[0][4] = logits[0][7] = 1;
      EXPECT_EQ(sample(logits.narrow(1, own.begin, own.size()), 9, tp, {.temperature = 0}, at::zeros({1}, at::kLong), 0)
                    .item<std::int64_t>(),
                4);
    });
}

TEST(CrossEntropy, GradientsMayBeComputedInBackward) {
  for (const int ranks : {1, 2, 4})
    for (const bool sequence_parallel : {false, true})
      on_tp(ranks, [&](Mesh& mesh) {
        const Parallel parallel{mesh, sequence_parallel};
        ColumnLinear head(kWidth, 37, parallel, {.padded = true});
        fill(head, mesh);
        const at::Tensor x0 = normal_tensor({8, kWidth}, 1, "x");
        const at::Tensor targets = at::tensor({3, 36, -100, 0, 17, 9, 20, 5}, at::kLong);
        std::vector<at::Tensor> losses, dxs;
        std::vector<Gradients> gradients;
        for (const bool later : {false, true}) {
          head.zero_grad();
          const at::Tensor x = parallel.own_tokens(x0).clone().set_requires_grad(true);
          const LossSum sum = sharded_cross_entropy(
              x, head.weight_fD, targets, 37, parallel,
              {.label_smoothing = 0.1, .z_loss = 0.01, .tile_tokens = 3, .gradients_in_backward = later});
          (sum.loss * 0.3).backward();
          losses.push_back(sum.loss.detach());
          dxs.push_back(x.grad());
          gradients.push_back(whole_gradients(head, mesh));
        }
        EXPECT_TRUE(losses[0].equal(losses[1]));
        EXPECT_LT(relative(dxs[1], dxs[0]), 1e-14);
        expect_close(gradients[1], gradients[0], 1e-14);
      });
}

/// Gradients of unlikely tokens are below the range of f16 (6e-8), and within it after the loss scale.
TEST(CrossEntropy, InFloat16TheLossScaleComesBeforeTheRounding) {
  run_ranks(1, [](World& world) {
    Mesh mesh(Grid::dense({}), world);
    const at::Tensor x = at::ones({1, 4}, at::kHalf).set_requires_grad(true);
    at::Tensor w = at::zeros({8, 4}, at::kHalf);
    w[0].fill_(5);  // logits 20 and 0: the others have probability 2e-9
    w.set_requires_grad(true);
    const at::Tensor loss = sharded_cross_entropy(x, w, at::zeros({1}, at::kLong), 8, mesh).loss;
    loss.backward(at::full_like(loss, 65536));
    const double probability = std::exp(-20.0) / (1 + 7 * std::exp(-20.0));
    EXPECT_NEAR(w.grad()[3][0].item<double>() / (65536 * probability), 1, 0.01);
  });
}

}  // namespace
}  // namespace trireme
