#include "trireme/parallel/pipeline/pipeline_p2p.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/parallel/pipeline/tensor_shape.hpp"

namespace trireme {
namespace {

std::int64_t number_of(const std::string& text) { return static_cast<std::int64_t>(fnv1a(text)); }

constexpr const char* kDataRule =
    "\n  fix: a tensor on exactly one rank of the pipeline, on all others a TensorPointer to that rank";

}  // namespace

PipelineP2P::PipelineP2P(Mesh& mesh, at::Device device) : mesh_(mesh), group_(mesh.group(Axis::pp)), device_(device) {}

void PipelineP2P::send(const at::Tensor& x, int to, const std::string& what) {
  group_.send(at::tensor({number_of(what)}, at::kLong).to(device_), to).wait();
  for (Pending& sent : send_shapes(shapes_of({x}), group_, to, device_)) std::move(sent).wait();
  if (x.numel() > 0) group_.send(x.detach().contiguous(), to).wait();
}

at::Tensor PipelineP2P::receive(int from, const std::string& what) {
  const at::Tensor number = at::empty({1}, at::TensorOptions(at::kLong).device(device_));
  group_.recv_(number, from).wait();
  if (number.item<std::int64_t>() != number_of(what))
    throw CommError(CommError::Kind::hang_or_mismatch,
                    text(what, ": pipeline rank ", from, " sent the input of another call",
                         "\n  fix: all ranks of a pipeline call the same blocks in the same order"));
  const std::vector<TensorShape> shapes = receive_shapes(group_, from, device_, what);
  require(shapes.size() == 1, what, ": ", shapes.size(), " tensors instead of one");
  const at::Tensor x = at::empty(shapes[0].sizes, at::TensorOptions(shapes[0].dtype).device(device_));
  if (x.numel() > 0) group_.recv_(x, from).wait();
  return x;
}

std::vector<std::vector<std::int64_t>> PipelineP2P::gather(const std::vector<std::int64_t>& numbers) {
  std::vector<std::vector<std::int64_t>> out(static_cast<std::size_t>(size()));
  if (numbers.empty()) return out;
  const at::Tensor all = group_.all_gather(at::tensor(numbers, at::kLong).to(device_)).wait().cpu();
  const auto* next = all.const_data_ptr<std::int64_t>();
  for (auto& of_rank : out) {
    of_rank.assign(next, next + numbers.size());
    next += numbers.size();
  }
  return out;
}

std::vector<std::string> PipelineP2P::gather(const std::string& words) {
  const auto sizes = gather(std::vector{static_cast<std::int64_t>(words.size())});
  const std::int64_t longest = std::ranges::max(sizes)[0];
  std::vector<std::string> out(sizes.size());
  if (longest == 0) return out;
  const at::Tensor bytes = at::zeros({longest}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), words.data(), words.size());
  const at::Tensor all = group_.all_gather(bytes.to(device_)).wait().cpu();
  const char* next = static_cast<const char*>(all.const_data_ptr());
  for (std::size_t r = 0; r < out.size(); ++r, next += longest)
    out[r].assign(next, static_cast<std::size_t>(sizes[r][0]));
  return out;
}

std::int64_t place_of(const TensorOrPointer& value) { return value.is_tensor() ? kHere : value.pointer().group_rank; }

int owner_of(const std::string& what, const std::vector<std::int64_t>& places) {
  std::vector<std::size_t> owners;
  std::string pointers, ranks;
  for (std::size_t r = 0; r < places.size(); ++r) {
    if (places[r] == kHere) {
      ranks += text(owners.empty() ? "" : " and ", r);
      owners.push_back(r);
    } else {
      pointers += text(pointers.empty() ? "" : ", ", "rank ", r, " points to rank ", places[r]);
    }
  }
  require<ConfigError>(!owners.empty(), what, ": no rank of the pipeline has the tensor (", pointers, ")", kDataRule);
  require<ConfigError>(owners.size() == 1, what, ": a tensor on pipeline ranks ", ranks, kDataRule);
  for (std::size_t r = 0; r < places.size(); ++r)
    require<ConfigError>(r == owners[0] || places[r] == static_cast<std::int64_t>(owners[0]), what,
                         ": the tensor is on pipeline rank ", owners[0], ", but rank ", r, " points to rank ",
                         places[r], kDataRule);
  return static_cast<int>(owners[0]);
}

}  // namespace trireme
