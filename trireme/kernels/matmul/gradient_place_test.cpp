#include "trireme/kernels/matmul/gradient_place.hpp"

#include "trireme/kernels/loss/embedding.hpp"
#include "trireme/kernels/matmul/matmul.hpp"
#include "trireme/kernels/norm/layer_norm.hpp"
#include "trireme/testing/kernels_helpers.hpp"

namespace trireme::kernels {
namespace {

/// The gradients written to a place, and those passed through autograd.
struct Record {
  at::Tensor value;
  bool is_empty = true;
  int complete = 0;
  at::Tensor by_autograd;
  bool defers = false;
  std::vector<GradientPlace::Write> deferred{};
};

class RecordedPlace final : public GradientPlace {
 public:
  explicit RecordedPlace(Record& record) : record_(record) {}
  Memory to_write() override { return {record_.value, std::exchange(record_.is_empty, false)}; }
  bool defer(const Write& write, bool /*reads_parameter*/) override {
    if (record_.defers) record_.deferred.push_back(write);
    return record_.defers;
  }
  void operator()(const torch::autograd::Variable& parameter) override {
    ++record_.complete;
    record_.by_autograd = parameter.grad();
    at::Tensor(parameter).mutable_grad() = at::Tensor();
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
  void apply_with_saved(torch::autograd::Variable&, torch::dynamo::autograd::SwapSavedVariables&) override {}

 private:
  Record& record_;
};

/// Gives a leaf a gradient buffer of `dtype`, initialized with NaN.
void give_place(const at::Tensor& leaf, at::ScalarType dtype, Record& record) {
  record.value = at::full(leaf.sizes(), NAN, leaf.options().dtype(dtype).requires_grad(false));
  torch::autograd::impl::set_post_acc_grad_hooks(leaf, std::make_unique<RecordedPlace>(record));
}

using Loss = std::function<at::Tensor(const at::Tensor& weight)>;

at::Tensor plain_gradient(const at::Tensor& weight, const Loss& loss) {
  const at::Tensor leaf = weight.detach().clone().requires_grad_();
  loss(leaf).backward();
  return leaf.grad().to(at::kCPU, at::kDouble);
}

/// A deferred write owns what it needs: it runs when the graph is gone.
TEST(GradientPlace, MayDeferTheWrite) {
  const at::Tensor weight = test::normal({5, 7}, 4), ids = at::arange(9).remainder(5);
  const Loss loss = [&](const at::Tensor& w) {
    return (kernels::linear(test::normal({9, 7}, 1), w) * test::normal({9, 5}, 2)).sum() +
           (kernels::embedding(w, ids) * test::normal({9, 7}, 3)).sum();
  };
  const at::Tensor leaf = weight.clone().requires_grad_();
  Record record;
  record.defers = true;
  give_place(leaf, at::kDouble, record);
  loss(leaf).backward();
  EXPECT_EQ(record.complete, 1);
  ASSERT_EQ(record.deferred.size(), 2u);
  EXPECT_TRUE(record.value.isnan().all().item<bool>()) << "nothing was written yet";
  record.deferred[0](record.value, true);
  record.deferred[1](record.value, false);
  EXPECT_LT((record.value - plain_gradient(weight, loss)).abs().max().item<double>(), 1e-13);
}

/// All uses of a weight write to its place, and autograd signals completion once.
TEST(GradientPlace, HoldsTheSumOfAllUses) {
  for (const at::Device device : test::devices())
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
      for (const at::ScalarType place : {dtype, at::kFloat, at::kBFloat16}) {
        if ((dtype == at::kDouble) != (place == at::kDouble)) continue;
        SCOPED_TRACE(text(dtype, " into ", place, " on ", device));
        const at::Tensor x = test::normal({33, 7}, 1).to(device, dtype),
                         dy = test::normal({33, 5}, 2).to(device, dtype);
        const at::Tensor ids =
            at::arange(33, at::TensorOptions(device).dtype(at::kLong)).remainder(4);  // each row several times
        const at::Tensor dz = test::normal({33, 7}, 3).to(device, dtype);
        const Loss head = [&](const at::Tensor& w) { return (kernels::linear(x, w) * dy).sum(); };
        const Loss table = [&](const at::Tensor& w) { return (kernels::embedding(w, ids) * dz).sum(); };
        const Loss plain_table = [&](const at::Tensor& w) { return (w.index_select(0, ids) * dz).sum(); };
        const at::Tensor weight = test::normal({5, 7}, 4).to(device, dtype);
        const double bound = dtype == at::kDouble                               ? 1e-13
                             : at::kBFloat16 == dtype || at::kBFloat16 == place ? 0.02
                                                                                : 1e-5;
        for (const auto& [ours, plain] : std::vector<std::pair<Loss, Loss>>{
                 {head, head},
                 {table, plain_table},
                 {[&](const at::Tensor& w) { return table(w) + head(w); },
                  [&](const at::Tensor& w) { return plain_table(w) + head(w); }},
                 {[&](const at::Tensor& w) { return head(w) + head(w * 2) + head(w); },
                  [&](const at::Tensor& w) { return head(w) + head(w * 2) + head(w); }}}) {
          const at::Tensor leaf = weight.detach().clone().requires_grad_();
          Record record;
          give_place(leaf, place, record);
          ours(leaf).backward();
          EXPECT_EQ(record.complete, 1);
          at::Tensor found = record.value.to(at::kCPU, at::kDouble);
          if (!record.by_autograd.is_sparse())  // head(w * 2): not a leaf, so its part goes through autograd
            found = found + record.by_autograd.to(at::kCPU, at::kDouble);
          else
            EXPECT_EQ(record.by_autograd._nnz(), 0);
          EXPECT_LE(test::difference(found, plain_gradient(weight, plain)), bound);
        }
      }
}

TEST(GradientPlace, Fp32KeepsWhatBf16WouldRound) {
  const at::Tensor x = test::normal({300, 7}, 1).to(at::kBFloat16), dy = test::normal({300, 5}, 2).to(at::kBFloat16);
  const at::Tensor leaf = at::zeros({5, 7}, at::kBFloat16).requires_grad_();
  Record record;
  give_place(leaf, at::kFloat, record);
  kernels::linear(x, leaf).backward(dy);
  EXPECT_LE(test::difference(record.value, at::mm(dy.t().to(at::kDouble), x.to(at::kDouble))), 1e-6);
}

/// Of biases everywhere, of norms on a GPU.
TEST(GradientPlace, SumsOverRowsAreNotRoundedEither) {
  for (const at::Device device : test::devices()) {
    SCOPED_TRACE(device);
    const auto on_device = [&](at::IntArrayRef sizes, int seed) {
      return test::normal(sizes, seed).to(device, at::kBFloat16);
    };
    const at::Tensor x = on_device({300, 16}, 1), dy = on_device({300, 24}, 2), w = on_device({24, 16}, 3);
    const at::Tensor bias = on_device({24}, 4).requires_grad_();
    Record record;
    give_place(bias, at::kFloat, record);
    kernels::linear(x, w, bias).backward(dy);
    kernels::linear(x, w, bias).backward(dy);  // of another microbatch
    EXPECT_LE(test::difference(record.value.cpu(), 2 * dy.cpu().to(at::kDouble).sum(0)), 1e-6);
    if (!device.is_cuda()) continue;
    const at::Tensor scale = on_device({24}, 5).requires_grad_(), shift = on_device({24}, 6).requires_grad_();
    Record of_scale, of_shift;
    give_place(scale, at::kFloat, of_scale);
    give_place(shift, at::kFloat, of_shift);
    const at::Tensor rows = on_device({300, 24}, 7);
    kernels::layer_norm(rows, scale, shift, 1e-5).backward(dy);
    const at::Tensor wide = rows.cpu().to(at::kDouble), mean = wide.mean(1, true);
    const at::Tensor normed = (wide - mean) / ((wide - mean).square().mean(1, true) + 1e-5).sqrt();
    EXPECT_LE(test::difference(of_shift.value.cpu(), dy.cpu().to(at::kDouble).sum(0)), 1e-6);
    EXPECT_LE(test::difference(of_scale.value.cpu(), (normed * dy.cpu().to(at::kDouble)).sum(0)), 1e-5);
  }
}

TEST(GradientPlace, WithoutOneAutogradHasAll) {
  const at::Tensor weight = at::ones({3, 2}, at::kDouble).requires_grad_();
  kernels::embedding(weight, at::zeros({4}, at::kLong)).sum().backward();
  EXPECT_FALSE(weight.grad().is_sparse());
  EXPECT_EQ(weight.grad()[0][0].item<double>(), 4);
  EXPECT_EQ(weight.grad()[2][1].item<double>(), 0);
}

}  // namespace
}  // namespace trireme::kernels
