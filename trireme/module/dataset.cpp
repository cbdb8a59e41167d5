#include "trireme/module/dataset.hpp"

#include <algorithm>

#include <ATen/ops/tensor.h>

#include "trireme/base/error.hpp"
#include "trireme/data/sampling/permutation.hpp"

namespace trireme {
namespace {

class TensorDataset final : public Dataset {
 public:
  explicit TensorDataset(Samples all) : all_(std::move(all)) {
    require<ConfigError>(!all_.inputs.empty(), "a dataset without inputs");
    for (const at::Tensor& x : all_.inputs)
      require<ConfigError>(
          x.dim() > 0 && x.size(0) == size() && (!all_.targets.defined() || all_.targets.size(0) == size()),
          "a dataset with inputs of sizes ", x.sizes(), " and targets of sizes ",
          all_.targets.defined() ? all_.targets.sizes() : at::IntArrayRef(),
          ": the first sizes, the numbers of samples, must be equal");
  }
  std::int64_t size() const override { return all_.inputs[0].size(0); }
  Samples get(const std::vector<std::int64_t>& indices) const override {
    const at::Tensor rows = at::tensor(indices, at::TensorOptions(at::kLong).device(all_.inputs[0].device()));
    Samples out{{}, {}, all_.names};
    for (const at::Tensor& x : all_.inputs) out.inputs.push_back(x.index_select(0, rows));
    if (all_.targets.defined()) out.targets = all_.targets.index_select(0, rows);
    return out;
  }

 private:
  const Samples all_;
};

class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices)
      : whole_(std::move(whole)), indices_(std::move(indices)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(indices_.size()); }
  Samples get(const std::vector<std::int64_t>& indices) const override {
    std::vector<std::int64_t> theirs;
    for (const std::int64_t i : indices) theirs.push_back(indices_.at(static_cast<std::size_t>(i)));
    return whole_->get(theirs);
  }

 private:
  const std::shared_ptr<const Dataset> whole_;
  const std::vector<std::int64_t> indices_;
};

}  // namespace

std::shared_ptr<const Dataset> tensor_dataset(Samples all) { return std::make_shared<TensorDataset>(std::move(all)); }
std::shared_ptr<const Dataset> tensor_dataset(at::Tensor x, at::Tensor y) {
  return tensor_dataset(Samples{{std::move(x)}, std::move(y)});
}
std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices) {
  return std::make_shared<Subset>(std::move(whole), std::move(indices));
}

std::vector<std::int64_t> EpochOrder::step(std::int64_t epoch, std::int64_t step) const {
  const data::Permutation permutation(RandomStream(seed, "fit shuffle"), static_cast<std::uint64_t>(epoch),
                                      static_cast<std::uint64_t>(samples));
  std::vector<std::int64_t> out;
  for (std::int64_t i = step * per_step; i < std::min(samples, (step + 1) * per_step); ++i)
    out.push_back(shuffle ? static_cast<std::int64_t>(permutation(static_cast<std::uint64_t>(i))) : i);
  return out;
}

std::vector<std::int64_t> part_of_step(const std::vector<std::int64_t>& indices, int rank, int ranks) {
  const auto count = static_cast<std::int64_t>(indices.size());
  const auto begin = [&](std::int64_t r) { return count / ranks * r + std::min(r, count % ranks); };
  return {indices.begin() + begin(rank), indices.begin() + begin(rank + 1)};
}

}  // namespace trireme
