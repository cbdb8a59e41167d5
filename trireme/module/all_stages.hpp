#pragma once
// What the ranks of a pipeline have of a model, on all of them.
#include <functional>
#include <string>

#include <ATen/core/ivalue.h>

#include "trireme/comm/group.hpp"

namespace trireme {

using VisitTensor = std::function<void(const std::string& name, const at::Tensor& value)>;

/// Tensors, lists and dictionaries of them from one rank to all. Collective, with tensors of `device`.
c10::IValue broadcast_value(int root, const c10::IValue& here, Group& group, at::Device device);

/// `own` calls what it is given with the tensors of this rank: f() gets those of all ranks, in their order, on all of
/// them. Collective.
void for_each_of_all_stages(Group& stages, at::Device device, const std::function<void(const VisitTensor&)>& own,
                            const VisitTensor& f);

}  // namespace trireme
