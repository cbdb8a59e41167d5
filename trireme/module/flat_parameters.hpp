#pragma once
// The parameters of a unit as one flat tensor: each rank keeps a shard, and all of it exists only while it is in use.
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.hpp"
#include "trireme/module/kept_tensor.hpp"
#include "trireme/module/module_tensors.hpp"
#include "trireme/parallel/tensor/gradients.hpp"

namespace trireme {

/// False: a parameter that is sharded, and not gathered now.
bool has_values(const at::Tensor& x);

/// The ranks that hold the same parameters, and how they share them.
struct FlatRanks {
  Group* all = nullptr;
  Group* shards = nullptr;    // each of these keeps another shard; null: every rank keeps all elements
  Group* replicas = nullptr;  // these keep the same elements; null: no other rank does
  int mean_over = 1;          // the ranks that see other samples: experts get gradients from more of them than `all`
  const ParamMesh* mesh = nullptr;  // of tensor-parallel layers; null: parameters are whole, apart from shards
};

struct FlatOptions {
  std::optional<at::ScalarType> param = std::nullopt;   // of the parameters in forward and backward
  std::optional<at::ScalarType> reduce = std::nullopt;  // of the gradients that travel
  GradientScale gradients = GradientScale::mean;
  at::Device device = at::kCPU;  // of the shards
  FillValues fill = nullptr;     // for parameters on at::kMeta
  std::string unit = {};         // its name, for messages
  int parameter_group = 0;       // of the optimizer
};

/// Parameters of one dtype, with or without gradients. The module's own tensors become views of the gathered elements:
/// their values exist between gather() and free(). The shard is a leaf for torch's optimizers, in the dtype that the
/// parameters had. Every parameter begins at a multiple of kFlatAlign elements, for kernels that read several at once;
/// the elements in between and after the last one are padding, and zero, as are their gradients. Whoever reads a
/// parameter that is not there, or its gradient, gets an error that names it.
class FlatParameters {
 public:
  /// Takes the values that the parameters have on the first rank of `all`, and frees their memory. Collective.
  FlatParameters(std::vector<Param> parameters, const FlatRanks& ranks, const FlatOptions& options);
  ~FlatParameters();
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;

  const std::vector<Param>& parameters() const { return parameters_; }
  at::Tensor shard() const { return shard_; }
  bool trained() const { return trained_; }
  int parameter_group() const { return options_.parameter_group; }
  std::int64_t numel() const { return numel_; }  // without padding

  /// The shard, and what is in it; without padding.
  KeptTensor kept() const;

  void start_gather();
  /// Starts it if that is still to be done. ConfigError if a parameter has got other memory since it was sharded.
  void finish_gather();
  void free();
  bool is_whole() const { return state_ == State::whole; }

  /// Sends the gradients of the parameters, zero for one without, and takes them away from the parameters.
  void start_reduction();
  /// Adds what arrived to shard().grad().
  void finish_reduction();
  /// From now on each parameter has a gradient that cannot be read: who asks for it has to ask the shard.
  void hide_gradients();
  void forget_gradients();

  /// Ends the sharding: the parameters get their whole values, in memory and the dtype of their own. Collective.
  void give_back();

  /// [padded elements] in the dtype of the shard. Collective.
  at::Tensor gathered_shards() const;
  /// The values of parameter i in a result of gathered_shards(): those of this rank's tensor of it.
  at::Tensor part(const at::Tensor& all, std::size_t i) const;
  /// The full parameter, also if it is cut over other ranks. Collective.
  at::Tensor full(const at::Tensor& all, std::size_t i) const;
  /// Takes this rank's elements of such a tensor.
  void set_shard(const at::Tensor& all);

 private:
  enum class State { absent, coming, whole, given_back };
  void fill(const Param& parameter, const at::Tensor& own) const;
  void share_full_values(const at::Tensor& all) const;
  void wait_for_gather();
  void check_memory(const at::Tensor& memory) const;
  void give_memory();
  void move_parameters(const at::Tensor& from, const at::Tensor& to);
  std::size_t whole_bytes() const { return static_cast<std::size_t>(whole_.numel()) * whole_.element_size(); }
  std::string names() const;
  bool is_shared_memory() const { return !ranks_.shards && whole_.scalar_type() == shard_.scalar_type(); }

  const std::vector<Param> parameters_;
  const FlatRanks ranks_;
  const FlatOptions options_;
  const bool trained_;
  const std::string unreadable_text_;
  std::vector<std::int64_t> offsets_;
  std::int64_t numel_ = 0, end_ = 0, padded_ = 0;  // of the parameters; with the padding between, and after them
  at::Tensor whole_, shard_;
  at::Tensor absent_;  // parameters without memory
  at::Tensor hidden_;  // a gradient without memory
  State state_ = State::whole;
  std::optional<Pending> gathering_, reducing_;
  const PartialSums partial_;
  const Reduce reduce_;   // of gradients, over the ranks
  const double divisor_;  // of gradients, before it
};

}  // namespace trireme
