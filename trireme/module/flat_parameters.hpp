#pragma once
// The parameters of a unit as one flat tensor: each rank keeps a shard, and all of it exists only while it is in use.
#include <optional>
#include <vector>

#include "trireme/comm/group.hpp"
#include "trireme/module/module_tensors.hpp"

namespace trireme {

struct FlatOptions {
  bool shards = true;                                   // else every rank keeps all elements
  std::optional<at::ScalarType> param = std::nullopt;   // of the parameters in forward and backward
  std::optional<at::ScalarType> reduce = std::nullopt;  // of the gradients that travel
  GradientScale gradients = GradientScale::mean;
};

/// Parameters of one dtype, with or without gradients. The module's own tensors become views of the gathered elements:
/// their values exist between gather() and free(). The shard is a leaf for torch's optimizers, in the dtype that the
/// parameters had. Every parameter begins at a multiple of kFlatAlign elements, for kernels that read several at once;
/// the elements in between and after the last one are padding, and zero, as are their gradients.
class FlatParameters {
 public:
  /// Takes the values of the parameters; they must be the same on all ranks.
  FlatParameters(std::vector<NamedTensor> parameters, Group& group, const FlatOptions& options);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  at::Tensor shard() const { return shard_; }
  bool trained() const { return trained_; }
  std::int64_t numel() const { return numel_; }  // without padding

  /// The shard, and what is in it; without padding.
  KeptTensor kept() const;

  void start_gather();
  void finish_gather();  // starts it if that is still to be done
  void free();
  bool is_whole() const { return state_ == State::whole; }

  /// Sends the gradients of the parameters, zero for one without, and takes them away from the parameters.
  void start_reduction();
  /// Adds what arrived to shard().grad().
  void finish_reduction();

  /// [padded elements] in the dtype of the shard. Collective.
  at::Tensor gathered_shards() const;
  /// The values of parameter i in a result of gathered_shards().
  at::Tensor part(const at::Tensor& all, std::size_t i) const;
  /// Takes this rank's elements of such a tensor.
  void set_shard(const at::Tensor& all);

 private:
  enum class State { absent, coming, whole };
  void wait_for_gather();
  bool is_shared_memory() const { return !options_.shards && whole_.scalar_type() == shard_.scalar_type(); }

  const std::vector<NamedTensor> parameters_;
  Group& group_;
  const FlatOptions options_;
  const bool trained_;
  std::vector<std::int64_t> offsets_;
  std::int64_t numel_ = 0, end_ = 0, padded_ = 0;  // of the parameters; with the padding between, and after them
  at::Tensor whole_, shard_;
  State state_ = State::whole;
  std::optional<Pending> gathering_, reducing_;
};

}  // namespace trireme
