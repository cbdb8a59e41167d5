#include "trireme/module/all_stages.hpp"

#include <tuple>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/jit/serialization/pickle.h>

namespace trireme {

c10::IValue broadcast_value(int root, const c10::IValue& here, Group& group, at::Device device) {
  if (group.size() == 1) return here;
  std::vector<char> bytes;
  if (group.rank() == root) bytes = torch::jit::pickle_save(here);
  const at::Tensor size = at::tensor({static_cast<std::int64_t>(bytes.size())}).to(device);
  bytes.resize(static_cast<std::size_t>(group.broadcast_(size, root).wait().item<std::int64_t>()));
  const at::Tensor host = at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
  host.copy_(group.broadcast_(host.to(device, at::kByte, false, /*copy=*/true), root).wait());
  return torch::jit::pickle_load(bytes);
}

void for_each_of_all_stages(Group& stages, at::Device device, const std::function<void(const VisitTensor&)>& own,
                            const VisitTensor& f) {
  const at::NoGradGuard no_grad;
  if (stages.size() == 1) return own(f);
  const std::string end;
  for (int rank = 0; rank < stages.size(); ++rank) {
    if (rank == stages.rank()) {
      own([&](const std::string& name, const at::Tensor& value) {
        broadcast_value(rank, std::make_tuple(name, value.detach().cpu()), stages, device);
        f(name, value);
      });
      broadcast_value(rank, std::make_tuple(end, at::Tensor(at::empty({0}))), stages, device);
      continue;
    }
    while (true) {
      const c10::IValue received = broadcast_value(rank, {}, stages, device);
      const auto& both = received.toTupleRef().elements();
      if (both[0].toStringRef() == end) break;
      f(both[0].toStringRef(), both[1].toTensor());
    }
  }
}

}  // namespace trireme
