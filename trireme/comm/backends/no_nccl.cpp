// For builds without CUDA; the counterpart of nccl_group.cpp.
#include "trireme/base/error.hpp"
#include "trireme/comm/backends/c10d_world.hpp"

namespace trireme {

std::unique_ptr<Group> connect_nccl(Membership members, const std::shared_ptr<FlightRecorder>&, const CommOptions&,
                                    const c10::intrusive_ptr<c10d::Store>&, at::Device,
                                    c10::intrusive_ptr<c10d::Backend>, std::shared_ptr<Watchdog>) {
  throw ConfigError(text("group ", members.str(), ": comm.backend = \"nccl\", but this build has no NCCL\n",
                         "  fix: comm.backend = \"gloo\", or build against a torch with CUDA"));
}

}  // namespace trireme
