#pragma once
// The parameters and optimizer states of a Zero as boxes of full tensors: what a rank saves, and what it loads.
#include <vector>

#include "trireme/parallel/state/state_slice.hpp"
#include "trireme/parallel/zero/zero.hpp"

namespace trireme {

/// What this rank saves: over all ranks every element of every weight and state once, spread over the ranks that hold
/// it. Weights are in the precision of the optimizer (the master weights, if there are separate ones).
std::vector<StateSlice> slices_to_save(const Zero& zero);

/// What this rank holds. After all of them have been set, call state_is_loaded().
std::vector<StateSlice> slices_to_load(const Zero& zero);

/// The same without what another rank with the same shards sets: then spread_to_replicas() completes it, a collective
/// call.
std::vector<StateSlice> slices_to_read(const Zero& zero);
void spread_to_replicas(const Zero& zero);

/// What this rank has of the reduced gradients, after Zero::finish_gradients(); kind "gradient".
std::vector<StateSlice> gradient_slices(const Zero& zero);

/// The weights that the model computes with, as far as they stay in memory between steps; kind "model".
std::vector<StateSlice> kept_weight_slices(const Zero& zero);

/// Collective: the optimizers continue after `optimizer_steps` steps, and the weights of the model, kept whole where
/// they are kept whole, become those of the optimizer.
void state_is_loaded(Zero& zero, std::int64_t optimizer_steps);

}  // namespace trireme
