#pragma once
// Runs a command on the ranks of a layout: threads of this process on a CPU, else processes.
#include <functional>
#include <string>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme {

/// `body(mesh, device, prints)` on every rank of the layout; one of them prints. Under a launcher the ranks are its
/// own; with GPUs they are started with `words`, the command line. Returns the exit code.
int on_ranks(const ModelConfig& model, const ParallelismConfig& layout, const std::vector<std::string>& words,
             const std::function<int(Mesh& mesh, at::Device device, bool prints)>& body);

/// Of `name`; "auto": bfloat16 where the device multiplies it natively, else float32.
at::ScalarType dtype_on(at::Device device, const std::string& name);

}  // namespace trireme
