#pragma once
// Full parameters from the shards of all ranks. Every function here is a collective: all ranks call it.
#include <functional>
#include <map>
#include <string>

#include "trireme/parallel/zero/zero.hpp"

namespace trireme {

/// Calls f(param, full) for every parameter of the model, trained and frozen, on all ranks in the order of
/// Zero::sections(). Only one bucket, and one full parameter, is gathered at a time.
void for_each_full_param(Zero& zero, const std::function<void(const ModelParam& param, const at::Tensor& full)>& f);

/// The same for the parameters of this pipeline rank; collective over the ranks of its stage.
void for_each_full_param_of_stage(Zero& zero, const std::function<void(const Param& param, const at::Tensor& full)>& f);

/// What is sharded as the parameters are, such as gradients or states: the part of this rank.
using ShardOfBucket = std::function<at::Tensor(const ZeroPart& part, std::size_t bucket)>;
/// Calls f(param, local, full) for every trained parameter of this pipeline rank, copies of tied ones included: `local`
/// is the rank's tensor, before ZeRO cuts it and with padding. Collective over the ranks of the stage.
void for_each_full_shard_of_stage(
    const Zero& zero, const ShardOfBucket& own,
    const std::function<void(const Param& param, const at::Tensor& local, const at::Tensor& full)>& f);
/// Of gradients: after Zero::finish_gradients().
inline at::Tensor gradient_shard(const ZeroPart& part, std::size_t bucket) { return part.gradients.shard(bucket); }

enum class StateOn { rank_0, all_ranks };
/// The parameters by name, in host memory, where they are wanted; elsewhere empty. A rank that calls it alone fails
/// after comm.timeout_s with the ranks that are missing, as in any collective.
std::map<std::string, at::Tensor> collective_state_dict(Zero& zero, StateOn where = StateOn::rank_0);

}  // namespace trireme
