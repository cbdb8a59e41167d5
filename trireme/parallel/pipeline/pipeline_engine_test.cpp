#include "trireme/parallel/pipeline/pipeline_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"
#include "trireme/testing/block_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Blocks by name, in the order in which a case places them, and how they are connected.
struct BlockNet {
  std::vector<PipelineBlock> blocks{};
  BlockForward forward{};

  PipelineBlock& dense(PipelineP2P& p2p, const std::string& name) {
    return blocks.emplace_back(test::dense_block(p2p, name));
  }
  PipelineBlock& function(PipelineP2P& p2p, const std::string& name, std::vector<std::string> inputs,
                          std::vector<std::string> outputs, std::function<BlockModule()> builder) {
    return blocks.emplace_back(BlockOptions{.p2p = p2p,
                                            .name = name,
                                            .module_builder = std::move(builder),
                                            .module_input_keys = std::move(inputs),
                                            .module_output_keys = std::move(outputs)});
  }
  PipelineBlock& product(PipelineP2P& p2p) {
    return function(p2p, "product", {"a", "b"}, {"loss"},
                    [] { return [](const at::Tensor& a, const at::Tensor& b) { return (a * b).tanh().sum(); }; });
  }
};

using MakeNet = BlockNet (*)(PipelineP2P& p2p);

TensorOrPointer through(const PipelineBlock& dense, const TensorOrPointer& x) {
  return dense({{"input", x}})["output"];
}

BlockNet chain_net(PipelineP2P& p2p) {
  BlockNet net;
  const PipelineBlock a = net.dense(p2p, "dense1"), b = net.dense(p2p, "dense2");
  const PipelineBlock loss =
      net.function(p2p, "loss", {"x"}, {"output"}, [] { return [](const at::Tensor& x) { return x.sum(); }; });
  net.forward = [=](const TensorDict& batch) { return loss({{"x", through(b, through(a, batch["x"]))}})["output"]; };
  return net;
}

BlockNet diamond_net(PipelineP2P& p2p) {
  BlockNet net;
  const PipelineBlock a = net.dense(p2p, "a"), b = net.dense(p2p, "b"), c = net.dense(p2p, "c"), d = net.product(p2p);
  net.forward = [=](const TensorDict& batch) {
    const TensorOrPointer hidden = through(a, batch["x"]);
    return d({{"a", through(b, hidden)}, {"b", through(c, hidden)}})["loss"];
  };
  return net;
}

/// A block that is used twice, with others in between.
BlockNet twice_net(PipelineP2P& p2p) {
  BlockNet net;
  const PipelineBlock a = net.dense(p2p, "a"), b = net.dense(p2p, "b"), d = net.product(p2p);
  net.forward = [=](const TensorDict& batch) {
    const TensorOrPointer first = through(a, batch["x"]), second = through(a, through(b, first));
    return d({{"a", first}, {"b", second}})["loss"];
  };
  return net;
}

/// The first hidden values, and the batch itself, skip the blocks in between.
BlockNet skip_net(PipelineP2P& p2p) {
  BlockNet net;
  const PipelineBlock a = net.dense(p2p, "a"), b = net.dense(p2p, "b"), c = net.dense(p2p, "c");
  const PipelineBlock loss = net.function(p2p, "loss", {"x", "first", "last"}, {"loss"}, [] {
    return [](const at::Tensor& x, const at::Tensor& first, const at::Tensor& last) {
      return (first * last + x).tanh().sum();
    };
  });
  net.forward = [=](const TensorDict& batch) {
    const TensorOrPointer first = through(a, batch["x"]);
    return loss({{"x", batch["x"]}, {"first", first}, {"last", through(c, through(b, first))}})["loss"];
  };
  return net;
}

/// A block with two outputs, one of them an integer, of which one more is not used; labels that are integers.
BlockNet integers_net(PipelineP2P& p2p) {
  BlockNet net;
  const PipelineBlock a = net.dense(p2p, "a");
  const PipelineBlock order = net.function(p2p, "order", {"x"}, {"largest", "index", "unused"}, [] {
    return [](const at::Tensor& x) {
      const auto [values, index] = x.max(1);
      return NamedTensors{{"index", index}, {"largest", values}, {"unused", x.sum()}};
    };
  });
  const PipelineBlock b = net.dense(p2p, "b");
  const PipelineBlock loss = net.function(p2p, "loss", {"x", "index", "largest", "labels"}, {"loss"}, [] {
    return [](const at::Tensor& x, const at::Tensor& index, const at::Tensor& largest, const at::Tensor& labels) {
      return (x.gather(1, index.unsqueeze(1)).squeeze(1) * largest + x.gather(1, labels.unsqueeze(1)).squeeze(1)).sum();
    };
  });
  net.forward = [=](const TensorDict& batch) {
    const TensorOrPointer hidden = through(a, batch["x"]);
    const TensorDict found = order({{"x", hidden}});
    return loss({{"x", through(b, hidden)},
                 {"index", found["index"]},
                 {"largest", found["largest"]},
                 {"labels", batch["labels"]}})["loss"];
  };
  return net;
}

struct EngineCase {
  const char* name;
  MakeNet make;
  int ranks;
  std::vector<int> places;      // of the blocks
  int x_on = 0, labels_on = 0;  // ranks
};

void PrintTo(const EngineCase& c, std::ostream* out) { *out << c.name; }

const std::vector<EngineCase>& engine_cases() {
  static const std::vector<EngineCase> cases = {
      {"DummyModelOn1", chain_net, 1, {0, 0, 0}},
      {"DummyModelOn2", chain_net, 2, {0, 1, 1}},
      {"DummyModelOn3", chain_net, 3, {0, 1, 2}},
      {"AGapAndAForeignBatch", chain_net, 4, {0, 2, 2}, 2, 3},
      {"Backwards", chain_net, 3, {2, 1, 0}, 0, 1},
      {"V", chain_net, 2, {0, 1, 0}},
      {"DiamondOn4", diamond_net, 4, {0, 1, 2, 3}},
      {"DiamondOn3", diamond_net, 3, {0, 1, 2, 0}, 0, 1},
      {"DiamondOn2", diamond_net, 2, {0, 1, 1, 1}},
      {"ABlockTwice", twice_net, 2, {0, 1, 1}},
      {"Skip", skip_net, 4, {0, 1, 2, 3}},
      {"SkipInAV", skip_net, 2, {1, 0, 1, 0}, 1, 0},
      {"Integers", integers_net, 3, {0, 0, 1, 2}, 0, 2},
      {"IntegersFromElsewhere", integers_net, 3, {0, 1, 0, 1}, 1, 2},
  };
  return cases;
}

/// Microbatches have different numbers of rows.
std::vector<TensorDict> batch_of(const EngineCase& c, const PipelineP2P& p2p, int microbatches, int step) {
  std::vector<TensorDict> out;
  for (int m = 0; m < microbatches; ++m) {
    const std::int64_t rows = 2 + (m + step) % 3;
    const at::Tensor x = test::normal_numbers({rows, test::kWidth}, static_cast<std::uint64_t>(100 * step + m));
    out.push_back({{"x", test::on_rank(c.x_on, p2p, x)},
                   {"labels", test::on_rank(c.labels_on, p2p, at::arange(rows) % test::kWidth)}});
  }
  return out;
}

struct Reference {
  std::vector<double> losses;
  NamedTensors gradients;
};

constexpr int kSteps = 2;
constexpr double kLossGradient = 0.25;

/// One rank calls the blocks directly, and torch computes the gradients.
Reference reference_of(EngineCase c, int microbatches) {
  c.x_on = c.labels_on = 0;
  Reference out;
  run_ranks(1, [&](World& world) {
    Mesh mesh(Grid::dense({}), world);
    PipelineP2P p2p(mesh, at::kCPU);
    BlockNet net = c.make(p2p);
    for (PipelineBlock& block : net.blocks) block.build_and_set_rank(0);
    for (int step = 0; step < kSteps; ++step)
      for (const TensorDict& microbatch : batch_of(c, p2p, microbatches, step)) {
        const at::Tensor loss = net.forward(microbatch).tensor();
        (loss * kLossGradient).backward();
        out.losses.push_back(loss.item<double>());
      }
    for (const PipelineBlock& block : net.blocks)
      for (const auto& parameter : block->named_parameters())
        out.gradients[block->options().name + "." + parameter.key()] = parameter.value().grad();
  });
  return out;
}

template <class Engine>
void expect_reference(const EngineCase& c, int microbatches) {
  const Reference reference = reference_of(c, microbatches);
  std::vector<int> parameters(static_cast<std::size_t>(c.ranks));
  run_ranks(c.ranks, [&](World& world) {
    Mesh mesh(Grid::dense({.pp = c.ranks}), world);
    PipelineP2P p2p(mesh, at::kCPU);
    BlockNet net = c.make(p2p);
    for (std::size_t b = 0; b < net.blocks.size(); ++b) net.blocks[b].build_and_set_rank(c.places[b]);
    Engine engine(p2p);
    const int loss_on = c.places.back();
    for (int step = 0; step < kSteps; ++step) {
      const BatchOutcome outcome = engine.train_batch(net.forward, batch_of(c, p2p, microbatches, step), kLossGradient);
      for (int m = 0; m < microbatches; ++m) {
        const TensorOrPointer& loss = outcome.losses[static_cast<std::size_t>(m)];
        if (p2p.rank() != loss_on) {
          EXPECT_EQ(loss.pointer(), TensorPointer{loss_on});
          continue;
        }
        EXPECT_FALSE(loss.tensor().requires_grad());
        const double expected = reference.losses[static_cast<std::size_t>(step * microbatches + m)];
        EXPECT_NEAR(loss.tensor().item<double>(), expected, 1e-12 * (1 + std::abs(expected)));
      }
      // Executed as written, and with the activations that replay counts.
      const auto rank = static_cast<std::size_t>(p2p.rank());
      schedule::Program executed;
      for (const ActionSpan& span : outcome.step.spans) executed.push_back(span.action);
      EXPECT_EQ(executed, engine.schedule().programs[rank]);
      EXPECT_EQ(outcome.step.peak_live, schedule::replay(engine.schedule()).ranks[rank].peak_live);
      mesh.end_step();
    }
    for (const PipelineBlock& block : net.blocks)
      for (const auto& parameter : block->named_parameters()) {
        const std::string name = block->options().name + "." + parameter.key();
        const at::Tensor& expected = reference.gradients.at(name);
        ASSERT_TRUE(parameter.value().grad().defined()) << name;
        EXPECT_LE((parameter.value().grad() - expected).abs().max().item<double>(),
                  1e-12 * expected.abs().max().item<double>())
            << name;
        ++parameters[static_cast<std::size_t>(p2p.rank())];
      }
  });
  int all = 0;
  for (const int count : parameters) all += count;
  EXPECT_EQ(all, static_cast<int>(reference.gradients.size()));
}

class EveryBlockModel : public testing::TestWithParam<EngineCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, EveryBlockModel, testing::ValuesIn(engine_cases()),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(EveryBlockModel, HasTheGradientsOfOneRank) {
  for (const int microbatches : {1, 2, 3, 8}) {
    SCOPED_TRACE(text(microbatches, " microbatches"));
    expect_reference<AllForwardAllBackward>(GetParam(), microbatches);
    expect_reference<OneForwardOneBackward>(GetParam(), microbatches);
  }
}

TEST(PipelineEngine, ATensorIsSentOnceToAChunkThatUsesItTwice) {
  run_ranks(2, [](World& world) {
    Mesh mesh(Grid::dense({.pp = 2}), world);
    PipelineP2P p2p(mesh, at::kCPU);
    BlockNet net = diamond_net(p2p);
    for (std::size_t b = 0; b < net.blocks.size(); ++b) net.blocks[b].build_and_set_rank(b == 0 ? 0 : 1);
    OneForwardOneBackward engine(p2p);
    const TensorDict microbatch{{"x", test::on_rank(0, p2p, at::ones({2, test::kWidth}, at::kDouble))}};
    engine.train_batch(net.forward, std::vector(4, microbatch));  // shapes are sent here
    const Group& forwards = mesh.channel(0, 1);
    const std::int64_t before = forwards.traffic(Op::send).calls;
    engine.train_batch(net.forward, std::vector(4, microbatch));
    EXPECT_EQ(forwards.traffic(Op::send).calls - before, p2p.rank() == 0 ? 4 : 0);
  });
}

using EngineBody = std::function<void(PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model)>;

/// DummyModel on two ranks.
template <class E = ConfigError>
std::string engine_error(const EngineBody& body) {
  return message_of<E>([&] {
    run_ranks(2, [&](World& world) {
      Mesh mesh(Grid::dense({.pp = 2}), world);
      PipelineP2P p2p(mesh, at::kCPU);
      OneForwardOneBackward engine(p2p);
      test::DummyModel model(p2p);
      model.build_and_set_ranks(0, 1, 1);
      body(p2p, engine, model);
    });
  });
}

TensorDict x_on_rank_0(const PipelineP2P& p2p) {
  return {{"x", test::on_rank(0, p2p, at::ones({2, test::kWidth}, at::kDouble))}};
}
BlockForward forward_of(const test::DummyModel& model) {
  return [&model](const TensorDict& batch) { return model.forward(batch["x"]); };
}

TEST(PipelineEngine, ChainsHaveTheSchedulesOfTheTextbook) {
  EXPECT_EQ(engine_error([](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
              engine.train_batch(forward_of(model), std::vector(5, x_on_rank_0(p2p)));
              EXPECT_EQ(engine.schedule(), schedule::make_schedule("1f1b", 2, 5));
              AllForwardAllBackward all_first(p2p);
              all_first.train_batch(forward_of(model), std::vector(5, x_on_rank_0(p2p)));
              EXPECT_EQ(all_first.schedule(), schedule::make_schedule("afab", 2, 5));
            }),
            "no error");
}

TEST(PipelineEngine, TheForwardIsCalledOncePerBatchAndWithoutTensors) {
  EXPECT_EQ(engine_error([](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
              int calls = 0;
              const std::int64_t sent = p2p.mesh().group(Axis::pp).traffic(Op::send).calls;
              const BlockForward forward = [&](const TensorDict& batch) {
                ++calls;
                EXPECT_EQ(batch["x"].pointer(), TensorPointer{0});
                const TensorOrPointer loss = model.forward(batch["x"]);
                EXPECT_EQ(loss.pointer(), TensorPointer{1});
                EXPECT_EQ(p2p.mesh().group(Axis::pp).traffic(Op::send).calls, sent);
                return loss;
              };
              engine.train_batch(forward, std::vector(3, x_on_rank_0(p2p)));
              EXPECT_EQ(calls, 1);
            }),
            "no error");
}

TEST(PipelineEngine, EvaluationHasTheLossesAndNoGradients) {
  EXPECT_EQ(engine_error([](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
              const auto evaluated = engine.evaluate_batch(forward_of(model), {x_on_rank_0(p2p), x_on_rank_0(p2p)});
              const PipelineBlock& own = p2p.rank() == 0 ? model.dense1 : model.dense2;
              EXPECT_FALSE(own->parameters()[0].grad().defined());
              EXPECT_EQ(evaluated.step.peak_live, 0);
              const auto trained = engine.train_batch(forward_of(model), {x_on_rank_0(p2p), x_on_rank_0(p2p)});
              EXPECT_TRUE(own->parameters()[0].grad().defined());
              if (p2p.rank() == 1) {
                EXPECT_TRUE(evaluated.losses[1].tensor().equal(trained.losses[1].tensor()));
              }
            }),
            "no error");
}

TEST(PipelineEngine, ParametersMayBeFrozenBetweenBatches) {
  EXPECT_EQ(engine_error([](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
              const auto train = [&] { engine.train_batch(forward_of(model), std::vector(2, x_on_rank_0(p2p))); };
              const PipelineBlock& own = p2p.rank() == 0 ? model.dense1 : model.dense2;
              train();
              const at::Tensor before = own->parameters()[0].grad().clone();
              for (const at::Tensor& parameter : model.dense1->parameters()) parameter.set_requires_grad(false);
              train();
              EXPECT_TRUE(own->parameters()[0].grad().allclose(p2p.rank() == 0 ? before : before * 2, 1e-12));
              for (const at::Tensor& parameter : model.dense1->parameters()) parameter.set_requires_grad(true);
              train();
              EXPECT_TRUE(own->parameters()[0].grad().allclose(before * (p2p.rank() == 0 ? 2 : 3), 1e-12));
            }),
            "no error");
}

TEST(PipelineEngine, ABatchThatIsNotOnExactlyOneRankIsNamed) {
  const auto error = [](const std::vector<TensorOrPointer>& by_rank) {
    return engine_error([&](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
      const TensorDict second{{"x", by_rank[static_cast<std::size_t>(p2p.rank())]}};
      engine.train_batch(forward_of(model), {x_on_rank_0(p2p), second});
    });
  };
  const at::Tensor x = at::ones({2, test::kWidth}, at::kDouble);
  EXPECT_EQ(error({x, TensorPointer{0}}), "no error");
  EXPECT_THAT(error({x, x}), HasSubstr("entry 'x' of microbatch 1: a tensor on pipeline ranks 0 and 1\n  fix: "));
  EXPECT_THAT(error({TensorPointer{1}, TensorPointer{0}}),
              HasSubstr("entry 'x' of microbatch 1: no rank of the pipeline has the tensor (rank 0 points to rank 1, "
                        "rank 1 points to rank 0)"));
  EXPECT_THAT(error({x, TensorPointer{1}}),
              HasSubstr("entry 'x' of microbatch 1: the tensor is on pipeline rank 0, but rank 1 points to rank 1"));
  EXPECT_THAT(error({TensorPointer{1}, x}),
              HasSubstr("entry 'x' is on pipeline rank 0 in microbatch 0, and on rank 1 in microbatch 1"));
}

TEST(PipelineEngine, BatchesThatDifferAreNamed) {
  const auto error = [](const std::function<std::vector<TensorDict>(const PipelineP2P&)>& batch) {
    return engine_error([&](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
      engine.train_batch(forward_of(model), batch(p2p));
    });
  };
  EXPECT_EQ(error([](const PipelineP2P&) { return std::vector<TensorDict>(); }),
            "a batch without microbatches: there must be at least 1");
  EXPECT_EQ(error([](const PipelineP2P& p2p) {
              const TensorDict x = x_on_rank_0(p2p);
              return std::vector<TensorDict>{x, {{"y", x["x"]}}};
            }),
            "microbatch 1 has the entries {y}, microbatch 0 has {x}");
  EXPECT_EQ(error([](const PipelineP2P& p2p) {
              return std::vector<TensorDict>{{{"x", test::on_rank(0, p2p, at::ones({2}, at::kMeta))}}};
            }),
            "entry 'x' of microbatch 0 is on meta, the device of the pipeline is cpu");
  EXPECT_EQ(error([](const PipelineP2P& p2p) { return std::vector<TensorDict>{{{"y", x_on_rank_0(p2p)["x"]}}}; }),
            "the batch has no 'x': its keys are {y}");
}

TEST(PipelineEngine, RanksWithDifferentModelsAreNamedAtTheFirstDifference) {
  const auto error = [](const std::function<TensorOrPointer(const test::DummyModel&, const TensorOrPointer&, int)>& f) {
    return engine_error<CommError>([&](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
      engine.train_batch([&](const TensorDict& batch) { return f(model, batch["x"], p2p.rank()); }, {x_on_rank_0(p2p)});
    });
  };
  EXPECT_THAT(
      error([](const test::DummyModel& model, const TensorOrPointer& x, int rank) {
        TensorOrPointer hidden = through(model.dense1, x);
        if (rank == 0) hidden = through(model.dense2, hidden);
        return model.loss({{"x", hidden}})["output"];
      }),
      HasSubstr("pipeline ranks 0 and 1 do not run the same model\n"
                "  --> on rank 0 call 2 is block 'dense2' on pipeline rank 1 (input = 'output' of call 1) -> "
                "{output}\n"
                "  --> on rank 1 call 2 is block 'loss' on pipeline rank 1 (x = 'output' of call 1) -> {output}\n"));
  EXPECT_THAT(error([](const test::DummyModel& model, const TensorOrPointer& x, int rank) {
                const TensorOrPointer loss = model.loss({{"x", x}})["output"];
                return rank == 0 ? loss : through(model.dense1, x);
              }),
              AllOf(HasSubstr("on rank 0 the loss is 'output' of call 1\n"),
                    HasSubstr("on rank 1 call 2 is block 'dense1' on pipeline rank 0 (input = the batch's 'x')")));
  EXPECT_THAT(
      engine_error<CommError>([](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
        const std::size_t microbatches = p2p.rank() == 0 ? 2 : 3;
        engine.train_batch(forward_of(model), std::vector(microbatches, x_on_rank_0(p2p)));
      }),
      HasSubstr("  --> on rank 0 the batch has 2 microbatches\n  --> on rank 1 the batch has 3 microbatches\n"));
}

TEST(PipelineEngine, WhatAForwardCannotDoIsNamed) {
  const auto error = [](const std::function<TensorOrPointer(const test::DummyModel&, const TensorOrPointer&)>& f) {
    return engine_error([&](PipelineP2P& p2p, OneForwardOneBackward& engine, test::DummyModel& model) {
      engine.train_batch([&](const TensorDict& batch) { return f(model, batch["x"]); }, {x_on_rank_0(p2p)});
    });
  };
  using Model = test::DummyModel;
  EXPECT_THAT(error([](const Model& model, const TensorOrPointer& x) { return model.forward(x.tensor() * 2); }),
              HasSubstr("a tensor was asked for while the model is recorded"));
  EXPECT_THAT(error([](const Model& model, const TensorOrPointer&) { return model.forward(at::ones({2, 5})); }),
              HasSubstr("block 'dense1', input 'input': neither an entry of the batch nor the result of a block"));
  EXPECT_EQ(error([](const Model&, const TensorOrPointer& x) { return x; }),
            "the forward returned a loss that no block has computed");
  EXPECT_EQ(error([](const Model& model, const TensorOrPointer& x) { return through(model.dense1, x); }),
            "block 'dense1' returned a loss that is not one number: [2, 5] of Double");
  EXPECT_EQ(error([](const Model& model, const TensorOrPointer& x) { return model.loss({{"x", x}})["output"]; }),
            "block 'loss' returned a loss that depends on no parameter that requires a gradient");
  // The recording is over after an error: blocks can be called.
  EXPECT_EQ(
      engine_error([](PipelineP2P& p2p, OneForwardOneBackward& engine, Model& model) {
        std::optional<TensorOrPointer> kept;
        EXPECT_THROW(engine.train_batch(
                         [&](const TensorDict& batch) -> TensorOrPointer {
                           kept = batch["x"];
                           throw DataError("no");
                         },
                         {x_on_rank_0(p2p)}),
                     DataError);
        EXPECT_EQ(model.forward(x_on_rank_0(p2p)["x"]).is_tensor(), p2p.rank() == 1);
        model.forward(*kept);
      }),
      "block 'dense1', input 'input': a value of the forward that an engine records\n  fix: call the block in the "
      "forward that the engine calls; all blocks share one p2p");
}

}  // namespace
}  // namespace trireme
