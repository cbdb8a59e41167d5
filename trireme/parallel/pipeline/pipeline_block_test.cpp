#include "trireme/parallel/pipeline/pipeline_block.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>

#include "trireme/base/error.hpp"
#include "trireme/testing/block_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

/// Runs the body on the ranks of a pipeline; the message of its error.
template <class E = ConfigError>
std::string block_error(int ranks, const std::function<void(PipelineP2P&)>& body) {
  return message_of<E>([&] {
    run_ranks(ranks, [&](World& world) {
      Mesh mesh(Grid::dense({.pp = ranks}), world);
      PipelineP2P p2p(mesh, at::kCPU);
      body(p2p);
    });
  });
}

BlockOptions options_of(PipelineP2P& p2p, std::function<BlockModule()> builder, std::vector<std::string> inputs,
                        std::vector<std::string> outputs) {
  return {.p2p = p2p,
          .name = "b",
          .module_builder = std::move(builder),
          .module_input_keys = std::move(inputs),
          .module_output_keys = std::move(outputs)};
}

TEST(PipelineBlock, DummyModelHasTensorsOnTheirRankAndPointersElsewhere) {
  const at::Tensor x = test::rows().narrow(1, 0, test::kWidth).contiguous();
  const at::Tensor hidden1 = test::named_linear("dense1")(x), hidden2 = test::named_linear("dense2")(hidden1);
  // The ranks of dense1, dense2, the loss, and of x.
  for (const std::vector<int>& at :
       std::vector<std::vector<int>>{{0, 1, 1, 0}, {0, 1, 0, 1}, {0, 1, 2, 0}, {2, 1, 0, 1}}) {
    const int ranks = std::ranges::max(at) + 1;
    EXPECT_EQ(block_error(ranks,
                          [&](PipelineP2P& p2p) {
                            test::DummyModel model(p2p);
                            model.build_and_set_ranks(at[0], at[1], at[2]);
                            // Only their ranks have the parameters.
                            EXPECT_EQ(model.dense1->parameters().size(), p2p.rank() == at[0] ? 2U : 0U);
                            EXPECT_EQ(model.dense2->parameters().size(), p2p.rank() == at[1] ? 2U : 0U);
                            EXPECT_TRUE(model.loss->parameters().empty());

                            const auto expect = [&](const TensorDict& result, int rank, const at::Tensor& expected) {
                              EXPECT_EQ(result.keys(), std::vector<std::string>{"output"});
                              if (p2p.rank() == rank) {
                                EXPECT_TRUE(result["output"].tensor().equal(expected));
                              } else {
                                EXPECT_FALSE(result["output"].is_tensor());
                                EXPECT_EQ(result["output"].pointer(), TensorPointer{rank});
                              }
                            };
                            const TensorDict first = model.dense1({{"input", test::on_rank(at[3], p2p, x)}});
                            expect(first, at[0], hidden1);
                            const TensorDict second = model.dense2({{"input", first["output"]}});
                            expect(second, at[1], hidden2);
                            expect(model.loss({{"x", second["output"]}}), at[2], hidden2.sum());
                          }),
              "no error");
  }
}

TEST(PipelineBlock, ModulesAreHoldersPointersAndFunctionsOfTensorsOrDictionaries) {
  EXPECT_EQ(block_error(2,
                        [](PipelineP2P& p2p) {
                          const auto run = [&](std::function<BlockModule()> builder, std::vector<std::string> outputs) {
                            PipelineBlock block(options_of(p2p, std::move(builder), {"y", "x"}, std::move(outputs)));
                            block.build_and_set_rank(1);
                            // An integer from one rank, and an empty tensor from the other.
                            return block({{"x", test::on_rank(0, p2p, at::arange(3))},
                                          {"y", test::on_rank(1, p2p, at::ones({0, 2}))}});
                          };
                          struct Difference : torch::nn::Module {
                            at::Tensor forward(const at::Tensor& y, const at::Tensor& x) { return x.sum() - y.sum(); }
                          };
                          const auto difference = run([] { return std::make_shared<Difference>(); }, {"z"});
                          const auto swapped = run(
                              [] {
                                return [](const NamedTensors& in) {
                                  return NamedTensors{{"a", in.at("y")}, {"b", in.at("x")}};
                                };
                              },
                              {"b", "a"});
                          if (p2p.rank() == 0) {
                            EXPECT_EQ(swapped["a"].pointer(), TensorPointer{1});
                            return;
                          }
                          EXPECT_EQ(difference["z"].tensor().item<double>(), 3);
                          EXPECT_EQ(swapped["b"].tensor().scalar_type(), at::kLong);
                          EXPECT_TRUE(swapped["b"].tensor().equal(at::arange(3)));
                          EXPECT_EQ(swapped["a"].tensor().sizes(), (std::vector<std::int64_t>{0, 2}));
                        }),
            "no error");

  EXPECT_EQ(block_error(1,
                        [](PipelineP2P& p2p) {
                          PipelineBlock sequential(options_of(
                              p2p, [] { return torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::ReLU()); },
                              {"x"}, {"y"}));
                          sequential.build_and_set_rank(0);
                          EXPECT_GE(sequential({{"x", at::ones({3, 2})}})["y"].tensor().min().item<double>(), 0);
                          EXPECT_EQ(sequential->named_parameters().keys()[0], "pp_block.0.weight");
                          PipelineBlock source(options_of(p2p, [] { return [] { return at::ones({2}); }; }, {}, {"y"}));
                          source.build_and_set_rank(0);
                          EXPECT_EQ(source({})["y"].tensor().numel(), 2);
                        }),
            "no error");
}

TEST(PipelineBlock, AReceivedTensorHasNoGraph) {
  EXPECT_EQ(block_error(2,
                        [](PipelineP2P& p2p) {
                          test::DummyModel model(p2p);
                          model.build_and_set_ranks(0, 1, 1);
                          const TensorOrPointer loss =
                              model.forward(test::on_rank(0, p2p, at::ones({2, test::kWidth}, at::kDouble)));
                          if (p2p.rank() == 1) loss.tensor().backward();
                          EXPECT_EQ((p2p.rank() == 0 ? model.dense1 : model.dense2)->parameters()[0].grad().defined(),
                                    p2p.rank() == 1);
                        }),
            "no error");
}

TEST(PipelineBlock, WrongKeysAreNamed) {
  const auto error = [](const std::function<TensorDict(const at::Tensor&)>& inputs) {
    return block_error(1, [&](PipelineP2P& p2p) {
      PipelineBlock block = test::dense_block(p2p, "dense1");
      block.build_and_set_rank(0);
      block(inputs(at::ones({1, test::kWidth}, at::kDouble)));
    });
  };
  EXPECT_EQ(error([](const at::Tensor& x) { return TensorDict{{"x", x}}; }),
            "block 'dense1' is called without 'input': it gets {x}, its module_input_keys are {input}");
  EXPECT_EQ(error([](const at::Tensor& x) { return TensorDict{{"input", x}, {"mask", x}}; }),
            "block 'dense1' is called with 'mask', which is none of its module_input_keys {input}");
  EXPECT_EQ(error([](const at::Tensor& x) { return TensorDict{{"input", x}, {"input", x}}; }),
            "the key 'input' is twice in a dictionary");
  EXPECT_THAT(error([](const at::Tensor&) { return TensorDict{{"input", at::Tensor()}}; }),
              HasSubstr("an undefined tensor cannot be an entry of a pipeline"));
  EXPECT_EQ(block_error(1,
                        [](PipelineP2P& p2p) {
                          PipelineBlock block = test::dense_block(p2p, "dense1");
                          block.build_and_set_rank(0);
                          block({{"input", at::ones({1, test::kWidth}, at::kDouble)}})["out"];
                        }),
            "the result of block 'dense1' has no 'out': its keys are {output}");
}

TEST(PipelineBlock, APlaceThatDoesNotExistIsNamed) {
  EXPECT_EQ(block_error(2, [](PipelineP2P& p2p) { test::dense_block(p2p, "dense1").build_and_set_rank(2); }),
            "block 'dense1' is placed on pipeline rank 2, but there are 2 (from 0 on)");
  EXPECT_EQ(block_error(1, [](PipelineP2P& p2p) { test::dense_block(p2p, "dense1").build_and_set_rank(-1); }),
            "block 'dense1' is placed on pipeline rank -1, but there are 1 (from 0 on)");
  EXPECT_EQ(block_error(2,
                        [](PipelineP2P& p2p) {
                          PipelineBlock block = test::dense_block(p2p, "dense1");
                          block.build_and_set_rank(0);
                          block.build_and_set_rank(1);
                        }),
            "block 'dense1' is placed on pipeline rank 1, but it is on rank 0 already");
  EXPECT_THAT(block_error(1, [](PipelineP2P& p2p) { test::dense_block(p2p, "dense1")({{"input", at::ones({1})}}); }),
              HasSubstr("block 'dense1' is called, but it is on no rank\n  fix: build_and_set_rank(pp_rank)"));
}

TEST(PipelineBlock, AnInputIsOnExactlyOneRank) {
  const auto error = [](const std::vector<TensorOrPointer>& by_rank) {
    return block_error(3, [&](PipelineP2P& p2p) {
      PipelineBlock block = test::dense_block(p2p, "dense1");
      block.build_and_set_rank(2);
      block({{"input", by_rank[static_cast<std::size_t>(p2p.rank())]}});
    });
  };
  const at::Tensor x = at::ones({1, test::kWidth}, at::kDouble);
  EXPECT_EQ(error({x, TensorPointer{0}, TensorPointer{0}}), "no error");
  EXPECT_THAT(
      error({TensorPointer{1}, TensorPointer{0}, TensorPointer{1}}),
      HasSubstr("block 'dense1', input 'input': no rank of the pipeline has the tensor (rank 0 points to rank 1, "
                "rank 1 points to rank 0, rank 2 points to rank 1)\n  fix: a tensor on exactly one rank"));
  EXPECT_THAT(error({x, TensorPointer{0}, x}),
              HasSubstr("block 'dense1', input 'input': a tensor on pipeline ranks 0 and 2\n"));
  EXPECT_THAT(
      error({x, TensorPointer{7}, TensorPointer{0}}),
      HasSubstr("block 'dense1', input 'input': the tensor is on pipeline rank 0, but rank 1 points to rank 7\n"));
}

TEST(PipelineBlock, ResultsOtherThanDeclaredAreNamed) {
  const auto error = [](std::function<BlockModule()> builder, std::vector<std::string> outputs) {
    return block_error(1, [&](PipelineP2P& p2p) {
      PipelineBlock block(options_of(p2p, builder, {"x"}, outputs));
      block.build_and_set_rank(0);
      block({{"x", at::ones({2})}});
    });
  };
  const auto same = [] { return [](const at::Tensor& x) { return x; }; };
  const auto pair = [] { return [](const at::Tensor& x) { return NamedTensors{{"y", x}, {"z", x}}; }; };
  EXPECT_EQ(error(same, {"y"}), "no error");
  EXPECT_THAT(error(same, {"y", "z"}), HasSubstr("block 'b' returned one tensor, its module_output_keys are {y, z}"));
  EXPECT_EQ(error(pair, {"y"}), "block 'b' returned 'z', which is none of its module_output_keys {y}");
  EXPECT_EQ(error(pair, {"y", "w"}), "block 'b' did not return 'w', one of its module_output_keys {y, w}");
  EXPECT_EQ(error([] { return [](const at::Tensor&) { return at::Tensor(); }; }, {"y"}),
            "block 'b' returned an undefined tensor as 'y'");
  EXPECT_EQ(error([] { return [](const at::Tensor& x) { return x.to(at::kMeta); }; }, {"y"}),
            "block 'b' returned 'y' on meta, the device of its pipeline is cpu");
  EXPECT_EQ(error([] { return [](const at::Tensor& a, const at::Tensor&) { return a; }; }, {"y"}),
            "block 'b': its module does not take 1 tensors {x}");
  EXPECT_EQ(error(same, {"y", "y"}), "block 'b': the keys {y, y} are not all different and not empty");
  EXPECT_EQ(error(same, {}), "block 'b' has no module_output_keys");
  EXPECT_EQ(error(nullptr, {"y"}), "block 'b' has no module_builder");
}

TEST(PipelineBlock, RanksThatCallDifferentBlocksAreNoticed) {
  const std::string error = block_error<CommError>(2, [](PipelineP2P& p2p) {
    test::DummyModel model(p2p);
    model.build_and_set_ranks(0, 1, 1);
    const TensorOrPointer x = test::on_rank(0, p2p, at::ones({1, test::kWidth}, at::kDouble));
    const TensorOrPointer hidden = model.dense1({{"input", x}})["output"];
    if (p2p.rank() == 0) {
      model.loss({{"x", hidden}});
    } else {
      model.dense2({{"input", hidden}});
    }
  });
  EXPECT_THAT(error,
              HasSubstr("block 'dense2', call 1, input 'input': pipeline rank 0 sent the input of another call"));
}

TEST(TensorOrPointer, SaysWhereTheTensorIs) {
  EXPECT_EQ(message_of<ConfigError>([] { TensorOrPointer(TensorPointer{3}).tensor(); }),
            "the tensor is on pipeline rank 3, here is a pointer to it");
  EXPECT_EQ(message_of<ConfigError>([] { TensorOrPointer(at::ones({1})).pointer(); }),
            "the tensor is on this rank, there is no pointer to it");
}

}  // namespace
}  // namespace trireme
