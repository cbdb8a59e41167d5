#include "trireme/comm/differentiable.hpp"

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/testing/gradcheck.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::differentiable {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// [4, 8, 4]: every dim is divisible by 1, 2 and 4, and joined ones stay apart from cut ones.
constexpr std::int64_t kX[] = {4, 8, 4};

/// One operation under test.
struct Case {
  std::string name;
  Across x, y;
  std::function<at::Tensor(const at::Tensor&, Group&)> run;
  /// The expected result of rank `me`, from the x of all ranks: with plain torch operations, without a group.
  std::function<at::Tensor(const std::vector<at::Tensor>&, int)> expected;
};

at::Tensor sum_over(const std::vector<at::Tensor>& x) {
  at::Tensor sum = x[0].clone();
  for (std::size_t r = 1; r < x.size(); ++r) sum = sum + x[r];
  return sum;
}

at::Tensor chunk_of(const at::Tensor& x, int i, std::size_t n, std::int64_t dim) {
  return x.chunk(static_cast<std::int64_t>(n), dim)[static_cast<std::size_t>(i)];
}

std::vector<Case> cases_of_dim(std::int64_t d) {
  const std::string at = text(" along ", d);
  const auto replicated = Across::replicated, varying = Across::varying;
  const auto cat = [d](const std::vector<at::Tensor>& x, int) { return at::cat(x, d); };
  return {
      {"all_gather" + at, varying, varying, [d](auto& x, auto& g) { return all_gather(x, d, g); }, cat},
      {"gather_replicated" + at, varying, replicated, [d](auto& x, auto& g) { return gather_replicated(x, d, g); },
       cat},
      {"reduce_scatter" + at, varying, varying, [d](auto& x, auto& g) { return reduce_scatter(x, d, g); },
       [d](auto& x, int me) { return chunk_of(sum_over(x), me, x.size(), d); }},
      {"split_replicated" + at, replicated, varying, [d](auto& x, auto& g) { return split_replicated(x, d, g); },
       [d](auto& x, int me) { return chunk_of(x[0], me, x.size(), d); }},
      {"scatter" + at, varying, varying, [d](auto& x, auto& g) { return scatter(x, g.size() - 1, d, g); },
       [d](auto& x, int me) { return chunk_of(x.back(), me, x.size(), d); }},
      {"gather" + at, varying, varying, [d](auto& x, auto& g) { return gather(x, g.size() - 1, d, g); },
       [d](auto& x, int me) {
         const at::Tensor whole = at::cat(x, d);
         return me == static_cast<int>(x.size()) - 1 ? whole : at::zeros_like(whole);
       }},
  };
}

Case exchange_case(std::int64_t from, std::int64_t to) {
  return {text("all_to_all from ", from, " to ", to), Across::varying, Across::varying,
          [=](auto& x, auto& g) { return all_to_all(x, from, to, g); },
          [=](auto& x, int me) {
            std::vector<at::Tensor> parts;
            for (const at::Tensor& theirs : x) parts.push_back(chunk_of(theirs, me, x.size(), from));
            return at::cat(parts, to);
          }};
}

std::vector<Case> all_cases() {
  const auto replicated = Across::replicated, varying = Across::varying;
  std::vector<Case> all{
      {"sum_grads", replicated, varying, [](auto& x, auto& g) { return sum_grads(x, g); },
       [](auto& x, int me) { return x[static_cast<std::size_t>(me)]; }},
      {"all_reduce", varying, replicated, [](auto& x, auto& g) { return all_reduce(x, g); },
       [](auto& x, int) { return sum_over(x); }},
      {"all_to_all", varying, varying, [](auto& x, auto& g) { return all_to_all(x, g); }, exchange_case(0, 0).expected},
      {"broadcast", varying, varying, [](auto& x, auto& g) { return broadcast(x, g.size() - 1, g); },
       [](auto& x, int) { return x.back(); }},
      {"reduce", varying, varying, [](auto& x, auto& g) { return reduce(x, g.size() - 1, g); },
       [](auto& x, int me) { return me == static_cast<int>(x.size()) - 1 ? sum_over(x) : at::zeros_like(x[0]); }},
  };
  for (const std::int64_t d : {0, 1, 2, -1, -3})
    for (Case& one : cases_of_dim(d)) all.push_back(std::move(one));
  for (const std::int64_t from : {0, 1, -1})
    for (const std::int64_t to : {0, 1, -1}) all.push_back(exchange_case(from, to));
  return all;
}

at::Tensor x_of_rank(const Case& op, int rank) {
  return normal_tensor(kX, 7, op.x == Across::replicated ? "x" : text("x of rank ", rank));
}

std::vector<at::Tensor> x_of_all(const Case& op, int size) {
  std::vector<at::Tensor> all;
  for (int r = 0; r < size; ++r) all.push_back(x_of_rank(op, r));
  return all;
}

/// The computation before and after the operation is not linear and differs between ranks if allowed.
at::Tensor loss_behind(const Case& op, const at::Tensor& y, const Group& g) {
  const at::Tensor weights =
      normal_tensor(y.sizes(), 8, op.y == Across::replicated ? "weights" : text("weights of rank ", g.rank()));
  return (y.sin() * weights).sum() + 0.1 * (y * y).sum();
}

class DifferentiableOver : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, DifferentiableOver, testing::Values(1, 2, 4));

TEST_P(DifferentiableOver, ForwardIsWhatTheTableSays) {
  run_ranks(GetParam(), [](Group& g) {
    for (const Case& op : all_cases()) {
      const at::Tensor y = op.run(x_of_rank(op, g.rank()), g);
      const at::Tensor expected = op.expected(x_of_all(op, g.size()), g.rank());
      EXPECT_EQ(y.sizes(), expected.sizes()) << op.name;
      EXPECT_TRUE(at::allclose(y, expected, 0, 1e-15)) << op.name << " on rank " << g.rank();
      const bool may_be_a_view = op.name.starts_with("split") || at::count_nonzero(y).item<std::int64_t>() == 0;
      EXPECT_TRUE(may_be_a_view || y.is_contiguous()) << op.name;
    }
  });
}

TEST_P(DifferentiableOver, GradientsAgreeWithDifferences) {
  run_ranks(GetParam(), [](Group& g) {
    for (const Case& op : all_cases()) {
      const std::vector<GradcheckInput> inputs{{"x", x_of_rank(op, g.rank()), op.x}};
      GradcheckResult result =
          gradcheck(g, [&](const auto& x) { return loss_behind(op, op.run(x[0] * x[0], g), g); }, inputs, op.y);
      EXPECT_TRUE(result.ok) << op.name << ": " << result.failure;
      EXPECT_EQ(result.comparisons, 3 * g.size()) << op.name;
      // The gradient of a sum is one expanded number without its own storage.
      result = gradcheck(g, [&](const auto& x) { return op.run(x[0], g).sum(); }, inputs, op.y, {.directions = 1});
      EXPECT_TRUE(result.ok) << op.name << " and sum: " << result.failure;
    }
  });
}

TEST_P(DifferentiableOver, TakesAnyStridesAndWritesToNobodysTensor) {
  run_ranks(GetParam(), [](Group& g) {
    for (const Case& op : all_cases()) {
      const at::Tensor x = x_of_rank(op, g.rank());
      const at::Tensor strided = x.permute({2, 0, 1}).contiguous().permute({1, 2, 0}).requires_grad_();
      const at::Tensor y = op.run(strided, g), plain = op.run(x, g);
      EXPECT_TRUE(at::equal(y, plain)) << op.name;
      EXPECT_TRUE(at::equal(strided, x)) << op.name;
      const at::Tensor dy = normal_tensor(y.sizes(), 9, text("dy of rank ", op.y == Across::varying ? g.rank() : 0));
      const at::Tensor turned = dy.transpose(0, 2).contiguous().transpose(0, 2);
      y.backward(turned);
      EXPECT_TRUE(at::equal(turned, dy)) << op.name << " wrote to the gradient it was given";
      EXPECT_TRUE(at::equal(strided, x)) << op.name;
    }
  });
}

TEST_P(DifferentiableOver, SizesOfOneAndOfZero) {
  run_ranks(GetParam(), [](Group& g) {
    const std::int64_t n = g.size();
    // [1, n, 1, 3]: nothing in front of the dim, one element in each chunk; and the same without any element.
    for (const std::int64_t width : {3, 0}) {
      const at::Tensor mine = normal_tensor({1, 1, 1, width}, 5, text("x of rank ", g.rank()));
      const at::Tensor all = all_gather(mine, 1, g);
      EXPECT_EQ(all.sizes(), (at::IntArrayRef{1, n, 1, width}));
      EXPECT_TRUE(at::equal(all.select(1, g.rank()), mine.select(1, 0)));
      EXPECT_TRUE(at::allclose(reduce_scatter(all, 1, g), mine * static_cast<double>(n)));
      EXPECT_TRUE(at::equal(split_replicated(all, 1, g), mine));
      EXPECT_TRUE(all_gather(mine.expand({2, 1, 1, width}).contiguous(), 1, g).is_contiguous());
      EXPECT_TRUE(at::equal(all_to_all(all_to_all(all, 1, 3, g), 3, 1, g), all));
    }
  });
}

TEST_P(DifferentiableOver, WorksInSmallerDtypes) {
  run_ranks(GetParam(), [](Group& g) {
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
      const double bound = dtype == at::kFloat ? 1e-6 : 2e-2;
      for (const Case& op : all_cases()) {
        const at::Tensor x = x_of_rank(op, g.rank()).to(dtype).requires_grad_();
        const at::Tensor y = op.run(x, g);
        EXPECT_EQ(y.scalar_type(), dtype) << op.name;
        const at::Tensor expected = op.expected(x_of_all(op, g.size()), g.rank());
        EXPECT_TRUE(at::allclose(y.to(at::kDouble), expected, bound, bound)) << op.name;
        y.sum().backward();
        EXPECT_EQ(x.grad().scalar_type(), dtype) << op.name;
      }
    }
  });
}

TEST_P(DifferentiableOver, MakesNoNodeWithoutNeed) {
  run_ranks(GetParam(), [](Group& g) {
    for (const Case& op : all_cases()) {
      const at::Tensor x = x_of_rank(op, g.rank());
      EXPECT_EQ(op.run(x, g).grad_fn(), nullptr) << op.name;
      EXPECT_TRUE(op.name != "sum_grads" || op.run(x, g).is_same(x));
      const at::Tensor leaf = x.clone().requires_grad_();
      EXPECT_EQ(op.run(leaf, g).grad_fn() != nullptr, g.size() > 1) << op.name;
      const at::NoGradGuard off;
      EXPECT_EQ(op.run(leaf, g).grad_fn(), nullptr) << op.name;
    }
  });
}

TEST(Differentiable, AGroupOfOneReturnsItsInput) {
  run_ranks(1, [](Group& g) {
    for (const Case& op : all_cases()) {
      const at::Tensor x = x_of_rank(op, 0).requires_grad_();
      EXPECT_TRUE(op.run(x, g).is_same(x)) << op.name;
    }
    const at::Tensor x = normal_tensor({3, 2}, 1, "x");
    EXPECT_TRUE(all_to_all(x, g, {3}, {3}).is_same(x));
    EXPECT_THAT(message_of<InternalError>([&] { all_to_all(x, g, {2}, {3}); }), HasSubstr("keeps its 3 rows"));
    EXPECT_EQ(g.traffic().calls, 0);
  });
}

TEST(Differentiable, TalksOnceEachWay) {
  run_ranks(4, [](Group& g) {
    for (const Case& op : all_cases()) {
      const at::Tensor x = x_of_rank(op, g.rank()).requires_grad_();
      const std::int64_t before = g.traffic().calls;
      const at::Tensor y = op.run(x, g);
      const std::int64_t forward = g.traffic().calls - before;
      y.sum().backward();
      const std::int64_t backward = g.traffic().calls - before - forward;
      const bool silent_forward = op.name == "sum_grads" || op.name.starts_with("split");
      const bool silent_backward = op.name == "all_reduce" || op.name.starts_with("gather_replicated");
      EXPECT_EQ(forward, silent_forward ? 0 : 1) << op.name;
      EXPECT_EQ(backward, silent_backward ? 0 : 1) << op.name;
    }
  });
}

TEST(Differentiable, TheNodeHasTheNameOfItsOperation) {
  run_ranks(2, [](Group& g) {
    const at::Tensor x = normal_tensor({2, 2}, 1, "x").requires_grad_();
    EXPECT_THAT(all_reduce(x, g).grad_fn()->name(), HasSubstr("all_reduce"));
    EXPECT_THAT(gather_replicated(x, 0, g).grad_fn()->name(), HasSubstr("gather_replicated"));
  });
}

// The backward of each operation is an operation: double backward needs nothing new. For f = sum of y^3 / 3 and the
// penalty |df/dx|^2, gradcheck tests the second derivatives.
TEST_P(DifferentiableOver, GradientsOfGradients) {
  run_ranks(GetParam(), [](Group& g) {
    for (const Case& op : all_cases()) {
      const GradcheckResult result = gradcheck(
          g,
          [&](const std::vector<at::Tensor>& in) {
            const at::AutoGradMode on(true);
            const at::Tensor x = in[0].requires_grad() ? in[0] : in[0].clone().requires_grad_();
            const at::Tensor f = op.run(x, g).pow(3).sum() / 3;
            const at::Tensor dx = torch::autograd::grad({f}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
            return dx.pow(2).sum();
          },
          {{"x", x_of_rank(op, g.rank()), op.x}}, op.x, {.directions = 1});
      EXPECT_TRUE(result.ok) << op.name << ": " << result.failure;
    }
  });
}

/// Rows from rank i to rank j; some ranks send nothing to some, and the last nothing at all.
std::int64_t rows_between(int from, int to, int size) {
  return from == size - 1 && size > 1 ? 0 : (3 * from + 2 * to) % 4;
}

TEST_P(DifferentiableOver, UnevenAllToAllWithZeroCounts) {
  run_ranks(GetParam(), [](Group& g) {
    std::vector<std::int64_t> send, recv;
    for (int r = 0; r < g.size(); ++r) {
      send.push_back(g.size() == 1 ? 3 : rows_between(g.rank(), r, g.size()));
      recv.push_back(g.size() == 1 ? 3 : rows_between(r, g.rank(), g.size()));
    }
    const Case op = exchange_case(0, 0);  // what the loss needs to know about it
    const at::Tensor x = normal_tensor({std::reduce(send.begin(), send.end()), 2}, 3, text("x of rank ", g.rank()));
    const GradcheckResult result = gradcheck(
        g,
        [&](const std::vector<at::Tensor>& in) {
          const at::Tensor strided = (in[0] * in[0]).t().contiguous().t();
          return loss_behind(op, all_to_all(strided, g, send, recv), g);
        },
        {{"x", x, Across::varying}}, Across::varying);
    EXPECT_TRUE(result.ok) << result.failure;

    // Row k from rank i to rank j encodes these indices.
    std::vector<double> says, hears;
    for (int r = 0; r < g.size(); ++r) {
      for (int k = 0; k < send[static_cast<std::size_t>(r)]; ++k) says.push_back(100 * g.rank() + 10 * r + k);
      for (int k = 0; k < recv[static_cast<std::size_t>(r)]; ++k) hears.push_back(100 * r + 10 * g.rank() + k);
    }
    EXPECT_TRUE(at::equal(all_to_all(at::tensor(says), g, send, recv), at::tensor(hears)));
  });
}

TEST(Differentiable, RanksThatLendTheirShapeTakeNoMemory) {
  run_ranks(2, [](Group& g) {
    const at::Tensor x = g.rank() == 0 ? normal_tensor({4, 3}, 1, "x").requires_grad_()
                                       : stand_in({4, 3}, at::TensorOptions(at::kDouble));
    EXPECT_TRUE(x.requires_grad());
    const std::size_t memory = sizeof(double) * (g.rank() == 0 ? 12 : 1);
    EXPECT_EQ(x.storage().nbytes(), memory);
    const at::Tensor mine = scatter(x, 0, 0, g);
    EXPECT_TRUE(at::equal(mine, normal_tensor({4, 3}, 1, "x").chunk(2)[static_cast<std::size_t>(g.rank())]));
    const at::Tensor all = broadcast(x, 0, g);
    EXPECT_TRUE(at::equal(all, normal_tensor({4, 3}, 1, "x")));
    const at::Tensor back = gather(mine, 0, 0, g);
    EXPECT_EQ(back.storage().nbytes(), memory);
    (back.sum() + all.sum()).backward();
    // Scattered and gathered once, broadcast to two ranks: 1 + 2.
    if (g.rank() == 0) {
      EXPECT_TRUE(at::equal(x.grad(), at::full({4, 3}, 3.0, at::kDouble)));
    }
  });
}

TEST(Differentiable, ASizeThatIsNotDivisibleIsAConfigError) {
  run_ranks(2, [](Group& g) {
    const at::Tensor x = normal_tensor({4, 7}, 1, "x");
    const std::vector<std::pair<const char*, std::function<void()>>> calls{
        {"reduce_scatter", [&] { reduce_scatter(x, -1, g); }},
        {"split_replicated", [&] { split_replicated(x, 1, g); }},
        {"scatter", [&] { scatter(x, 0, 1, g); }},
        {"all_to_all", [&] { all_to_all(x, 1, 0, g); }}};
    const char* rule = " on group world{0,1}: size 7 of dim 1 of a tensor of sizes [4, 7] is not divisible by the ";
    for (const auto& [name, call] : calls)
      EXPECT_THAT(message_of<ConfigError>(call),
                  AllOf(HasSubstr(text(name, rule, "group's size 2")), HasSubstr("fix: ")));
    EXPECT_THAT(message_of<InternalError>([&] { all_gather(x, 2, g); }),
                HasSubstr("all_gather on group world{0,1}: dim 2 of a tensor of sizes [4, 7]: must be from -2 to 1"));
    EXPECT_THAT(message_of<InternalError>([&] { all_gather(x.sum(), 0, g); }), HasSubstr("dim 0 of a tensor"));
  });
}

// ColumnParallelLinear, as in Megatron-LM.
// B inputs, I input features, O outputs, o = O / n

struct ColumnLinear {
  at::Tensor weight_oI, bias_o;

  ///   forward    y_BO  = cat_r (x_BI @ W_oI^T + b_o)   gather
  ///   backward   dx_BI = sum_r dy_Bo @ W_oI            all_reduce
  ///              dW_oI = dy_Bo^T @ x_BI, db_o = sum_B dy_Bo
  at::Tensor forward(const at::Tensor& x_BI, Group& g) const {
    return gather_replicated(at::linear(sum_grads(x_BI, g), weight_oI, bias_o), -1, g);
  }
};

at::Tensor chunk_for(const Group& g, const at::Tensor& whole) {
  return chunk_of(whole, g.rank(), static_cast<std::size_t>(g.size()), 0).detach().clone().requires_grad_();
}

TEST(ColumnParallelLinear, TheNumbersOfSeedTwo) {
  for (const int n : {1, 2})
    run_ranks(n, [](Group& g) {
      // torch.manual_seed(0); torch.randn([2, 4]); torch.randn([4, 2]), from this rank's own generator.
      at::Generator generator = at::detail::createCPUGenerator(0);
      const at::Tensor inputs_BI = at::randn({2, 4}, generator), weights_IO = at::randn({4, 2}, generator);
      EXPECT_NEAR(inputs_BI[0][0].item<double>(), 1.5410, 5e-5);
      EXPECT_NEAR(weights_IO[3][1].item<double>(), 0.1227, 5e-5);
      const ColumnLinear layer{chunk_for(g, weights_IO.t()), at::zeros(2 / g.size())};
      const at::Tensor expected = at::tensor({0.3243, -3.0032, 0.3713, 0.7296}, at::kFloat).view({2, 2});
      EXPECT_LT((layer.forward(inputs_BI, g) - expected).abs().max().item<double>(), 5e-5);
    });
}

TEST(ColumnParallelLinear, EqualsItsSerialResult) {
  const at::Tensor x_BI = normal_tensor({5, 6}, 2, "x"), weight_OI = normal_tensor({8, 6}, 2, "weight"),
                   bias_O = normal_tensor({8}, 2, "bias"), weights_BO = normal_tensor({5, 8}, 2, "loss");
  const auto loss_of = [&](const at::Tensor& y_BO) { return (y_BO.tanh() * weights_BO).sum(); };
  const auto near = [](const at::Tensor& a, const at::Tensor& b) {
    return (a - b).norm().item<double>() <= 1e-12 * b.norm().item<double>();
  };
  const at::Tensor x = x_BI.clone().requires_grad_(), w = weight_OI.clone().requires_grad_(),
                   b = bias_O.clone().requires_grad_();
  const at::Tensor y = at::linear(x, w, b);
  loss_of(y).backward();
  for (const int n : {1, 2, 4})
    run_ranks(n, [&](Group& g) {
      const ColumnLinear layer{chunk_for(g, weight_OI), chunk_for(g, bias_O)};
      const at::Tensor mine_BI = x_BI.clone().requires_grad_();
      const at::Tensor y_BO = layer.forward(mine_BI, g);
      EXPECT_TRUE(near(y_BO, y));
      loss_of(y_BO).backward();
      EXPECT_TRUE(near(mine_BI.grad(), x.grad()));
      EXPECT_TRUE(near(layer.weight_oI.grad(), chunk_of(w.grad(), g.rank(), static_cast<std::size_t>(n), 0)));
      EXPECT_TRUE(near(layer.bias_o.grad(), chunk_of(b.grad(), g.rank(), static_cast<std::size_t>(n), 0)));
    });
}

}  // namespace
}  // namespace trireme::differentiable
