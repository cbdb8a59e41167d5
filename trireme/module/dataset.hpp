#pragma once
// Data for fit(): samples by index, and the order in which an epoch visits them.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

namespace trireme {

struct Samples {
  std::vector<at::Tensor> inputs;       // each [n, ...]
  at::Tensor targets;                   // [n, ...]; may be undefined for a model that computes its own loss
  std::vector<std::string> names = {};  // of the inputs, for a model that takes them by name
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual Samples get(const std::vector<std::int64_t>& indices) const = 0;
};

/// All samples in memory. ConfigError if the tensors have different numbers of them.
std::shared_ptr<const Dataset> tensor_dataset(Samples all);
std::shared_ptr<const Dataset> tensor_dataset(at::Tensor x, at::Tensor y);

/// Some samples of another: for a part of it, or a fold.
std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<std::int64_t> indices);

/// A map-style dataset of torch::data, whose get(index) is an Example<>.
template <class D>
std::shared_ptr<const Dataset> torch_dataset(D dataset) {
  class Adapter final : public Dataset {
   public:
    explicit Adapter(D it) : it_(std::move(it)) {}
    std::int64_t size() const override { return static_cast<std::int64_t>(it_.size().value()); }
    Samples get(const std::vector<std::int64_t>& indices) const override {
      std::vector<at::Tensor> data, targets;
      const auto add = [&](std::int64_t i) {
        auto example = it_.get(static_cast<std::size_t>(i));
        data.push_back(example.data);
        targets.push_back(example.target);
      };
      for (const std::int64_t i : indices) add(i);
      if (indices.empty()) add(0);  // for the shapes alone
      const auto joined = [&](const std::vector<at::Tensor>& parts) {
        return at::stack(parts).narrow(0, 0, static_cast<std::int64_t>(indices.size()));
      };
      return {{joined(data)}, joined(targets)};
    }

   private:
    mutable D it_;  // get() of torch's datasets is not const
  };
  return std::make_shared<Adapter>(std::move(dataset));
}

/// The samples of each step of an epoch: a function of (seed, epoch, step), the same for any number of ranks.
struct EpochOrder {
  std::int64_t samples = 0;
  std::int64_t per_step = 1;  // over all ranks; the last step may have fewer
  bool shuffle = true;
  std::uint64_t seed = 0;

  std::int64_t steps() const { return (samples + per_step - 1) / per_step; }
  std::vector<std::int64_t> step(std::int64_t epoch, std::int64_t step) const;
};

/// Rank r's part of the samples of a step: contiguous, and larger by at most one than another's.
std::vector<std::int64_t> part_of_step(const std::vector<std::int64_t>& indices, int rank, int ranks);

}  // namespace trireme
