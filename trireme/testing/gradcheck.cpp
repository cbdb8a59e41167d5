#include "trireme/testing/gradcheck.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros_like.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

const char* name(Across across) { return across == Across::replicated ? "replicated" : "varying"; }

/// The position of a comparison, for its message.
struct Place {
  const GradcheckInput& input;
  int rank, direction;
};

class Gradcheck {
 public:
  Gradcheck(Group& group, const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss,
            const std::vector<GradcheckInput>& inputs, Across loss_is, const GradcheckOptions& options)
      : group_(group), loss_(loss), inputs_(inputs), loss_is_(loss_is), options_(options) {}

  GradcheckResult run() {
    check_inputs();
    const std::vector<at::Tensor> gradients = backward();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const bool together = inputs_[i].across == Across::replicated;
      for (int mover = 0; mover < (together ? 1 : group_.size()); ++mover)
        for (int k = 0; k < options_.directions; ++k) compare(i, together ? -1 : mover, k, gradients[i]);
    }
    return result_;
  }

 private:
  void check_inputs() {
    require(!inputs_.empty(), "gradcheck on group ", group_.str(), ": no inputs");
    for (const GradcheckInput& input : inputs_) {
      require(input.value.defined() && input.value.scalar_type() == at::kDouble, "gradcheck: input ", input.name,
              " must be f64: differences in a smaller dtype are noise\n  fix: pass value.to(torch::kDouble)");
      if (input.across == Across::replicated) check_alike(input);
    }
  }

  void check_alike(const GradcheckInput& input) {
    const at::Tensor mine = input.value.detach().clone(at::MemoryFormat::Contiguous);
    at::Tensor first = mine.clone();
    first = group_.broadcast_(first, 0).wait();
    const at::Tensor unlike = at::empty({1}, mine.options()).fill_(at::equal(first, mine) ? 0 : 1);
    require(group_.all_reduce_(unlike).wait().item<double>() == 0, "gradcheck on group ", group_.str(), ": input ",
            input.name, " is declared replicated, but the ranks do not have the same");
  }

  /// The inputs as new leaves.
  std::vector<at::Tensor> leaves() const {
    std::vector<at::Tensor> all;
    for (const GradcheckInput& input : inputs_) all.push_back(input.value.detach().clone());
    return all;
  }

  std::vector<at::Tensor> backward() {
    const at::AutoGradMode with_graph(true);
    std::vector<at::Tensor> x = leaves();
    for (at::Tensor& leaf : x) leaf.requires_grad_();
    const at::Tensor mine = loss_(x);
    require(mine.defined() && mine.numel() == 1 && mine.scalar_type() == at::kDouble,
            "gradcheck: the loss must be one f64 number");
    loss_value_ = total(mine);
    // If no input reaches the loss of this rank, there is nothing to backpropagate through.
    if (mine.requires_grad()) mine.sum().backward();
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& leaf : x) gradients.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
    return gradients;
  }

  /// The values of all ranks.
  std::vector<double> of_all(const at::Tensor& mine) {
    const at::Tensor all = group_.all_gather(mine.detach().reshape({1})).wait().cpu();
    return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
  }

  /// The loss of the group.
  double total(const at::Tensor& mine) {
    const std::vector<double> losses = of_all(mine);
    double sum = 0;
    for (std::size_t r = 0; r < losses.size(); ++r) {
      sum += losses[r];
      if (loss_is_ == Across::replicated && !(std::abs(losses[r] - losses[0]) <= 1e-12 * std::abs(losses[0])))
        fail(text("the loss is declared replicated, but is ", losses[0], " on rank 0 and ", losses[r], " on rank ", r));
    }
    return loss_is_ == Across::replicated ? losses[0] : sum;
  }

  /// `mover` < 0: all ranks.
  bool moves(int mover) const { return mover < 0 || mover == group_.rank(); }

  double loss_at(std::size_t i, int mover, const at::Tensor& direction, double step) {
    const at::NoGradGuard no_graph;
    std::vector<at::Tensor> x = leaves();
    if (moves(mover)) x[i].add_(direction, step);
    return total(loss_(x));
  }

  void compare(std::size_t i, int mover, int k, const at::Tensor& gradient) {
    const GradcheckInput& input = inputs_[i];
    const at::Tensor direction = normal_tensor(input.value.sizes(), options_.seed,
                                               text("gradcheck input ", i, " rank ", mover, " direction ", k))
                                     .to(input.value.device());
    const double h = options_.step;
    const double numeric = (loss_at(i, mover, direction, h) - loss_at(i, mover, direction, -h)) / (2 * h);
    const std::vector<double> slopes = of_all((gradient * direction).sum());
    for (int r = 0; r < group_.size(); ++r)
      if (mover < 0 || mover == r) check_slope({input, r, k}, slopes[static_cast<std::size_t>(r)], numeric);
  }

  void check_slope(const Place& at, double analytic, double numeric) {
    ++result_.comparisons;
    const double scale = std::max(
        {std::abs(analytic), std::abs(numeric), 1e-2 * std::abs(loss_value_), std::numeric_limits<double>::min()});
    const double error = std::abs(analytic - numeric) / scale;
    if (!(error <= result_.worst)) result_.worst = error;
    if (error <= options_.tolerance) return;  // false for NaN, which is a failure
    fail(text("input ", at.input.name, " (", name(at.input.across), "), rank ", at.rank, " of ", group_.size(),
              ", direction ", at.direction, ": backward gives ", analytic, ", differences of the ", name(loss_is_),
              " loss give ", numeric, " (ratio ", analytic / numeric, ", relative error ", error, ", bound ",
              options_.tolerance, ")"));
  }

  void fail(const std::string& why) {
    if (result_.ok) result_.failure = text("gradcheck on group ", group_.str(), ": ", why);
    result_.ok = false;
  }

  Group& group_;
  const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss_;
  const std::vector<GradcheckInput>& inputs_;
  const Across loss_is_;
  const GradcheckOptions& options_;
  double loss_value_ = 0;
  GradcheckResult result_;
};

}  // namespace

GradcheckResult gradcheck(Group& group, const std::function<at::Tensor(const std::vector<at::Tensor>&)>& loss,
                          const std::vector<GradcheckInput>& inputs, Across loss_is, const GradcheckOptions& options) {
  return Gradcheck(group, loss, inputs, loss_is, options).run();
}

at::Tensor normal_tensor(at::IntArrayRef sizes, std::uint64_t seed, std::string_view purpose) {
  const at::Tensor x = at::empty(sizes, at::kDouble);
  const RandomStream stream(seed, purpose);
  auto* out = x.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < x.numel(); ++i) out[i] = stream.normal(static_cast<std::uint64_t>(i));
  return x;
}

}  // namespace trireme
