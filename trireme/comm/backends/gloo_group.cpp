#include "trireme/comm/backends/gloo_group.hpp"

#include <bit>

#include <ATen/ops/empty_like.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "trireme/base/process_start.hpp"
#include "trireme/comm/rank_order.hpp"

namespace trireme {
namespace {

constexpr int kMessageTag = 0, kGatherTag = 1, kFirstSumTag = 2;

/// Messages: CUDA tensors are staged through host memory, since c10d's Gloo treats the data pointer as a host pointer.
class GlooMessages final : public C10dWork {
 public:
  struct Landing {
    at::Tensor host, device;
  };
  GlooMessages(std::vector<c10::intrusive_ptr<c10d::Work>> works, std::chrono::milliseconds limit,
               std::vector<at::Tensor> held, std::vector<Landing> landings)
      : C10dWork(std::move(works), limit), held_(std::move(held)), landings_(std::move(landings)) {}
  void wait() override {
    C10dWork::wait();
    for (const Landing& l : landings_) l.device.copy_(l.host);
  }

 private:
  std::vector<at::Tensor> held_;  // until the data has been sent
  std::vector<Landing> landings_;
};

/// Parts for this rank from all others; reduced when the result is requested.
class ExchangedParts final : public C10dWork {
 public:
  ExchangedParts(c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> parts, at::Tensor out, Reduce reduce)
      : C10dWork({std::move(work)}), parts_(std::move(parts)), out_(std::move(out)), reduce_(reduce) {}
  void wait() override {
    C10dWork::wait();
    const at::NoGradGuard no_grad;
    out_.view(-1).copy_(reduce_in_rank_order(parts_, reduce_));
  }

 private:
  const std::vector<at::Tensor> parts_;
  const at::Tensor out_;
  const Reduce reduce_;
};

/// A sum in place, by messages between ranks whose numbers differ in one bit: after round k each has the sum of 2^(k+1)
/// ranks. Ranks beyond the largest power of two give their numbers to one of the others, and get the sum from it.
class SumInRounds final : public CommWork {
 public:
  using Message = std::function<c10::intrusive_ptr<c10d::Work>(std::vector<at::Tensor>& tensors, int peer)>;

  SumInRounds(at::Tensor sum, int rank, int size, std::chrono::milliseconds limit, Message send, Message recv)
      : sum_(std::move(sum)), rank_(rank), size_(size), limit_(limit), send_(std::move(send)), recv_(std::move(recv)) {}
  bool done() override { return false; }
  void wait() override {
    const at::NoGradGuard no_grad;
    const int whole = static_cast<int>(std::bit_floor(static_cast<unsigned>(size_)));
    if (rank_ >= whole) {
      exchange(rank_ - whole, sum_, {});
      exchange(rank_ - whole, {}, sum_);
      return;
    }
    const bool also_for_another = rank_ + whole < size_;
    const at::Tensor theirs = at::empty_like(sum_);
    if (also_for_another) {
      exchange(rank_ + whole, {}, theirs);
      sum_.add_(theirs);
    }
    for (int bit = 1; bit < whole; bit *= 2) {
      exchange(rank_ ^ bit, sum_, theirs);
      sum_.add_(theirs);
    }
    if (also_for_another) exchange(rank_ + whole, sum_, {});
  }

 private:
  void exchange(int peer, const at::Tensor& mine, const at::Tensor& theirs) {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<at::Tensor> out{mine}, in{theirs};
    if (theirs.defined()) works.push_back(recv_(in, peer));
    if (mine.defined()) works.push_back(send_(out, peer));
    for (const auto& work : works) work->wait(limit_);
  }

  const at::Tensor sum_;
  const int rank_, size_;
  const std::chrono::milliseconds limit_;
  const Message send_, recv_;
};

}  // namespace

// c10d's all_gather over Gloo collects the parts in its own buffer and copies them; its traffic is that of a ring, and
// so is sending each part directly to its destination. As with all messages over Gloo, done() is false until wait():
// c10d's sends and receives cannot be polled.
std::unique_ptr<CommWork> GlooGroup::start_gather(const Call& call) {
  const at::NoGradGuard no_grad;
  const at::Tensor in = call.input.view(-1), out = call.output.view(-1);
  const auto part = [&](int r) { return out.narrow(0, r * in.numel(), in.numel()); };
  if (part(rank()).data_ptr() != in.data_ptr()) part(rank()).copy_(in);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int step = 1; step < size(); ++step) {  // each rank has a different peer in each round
    const int to = (rank() + step) % size(), from = (rank() - step + size()) % size();
    std::vector<at::Tensor> mine{in}, theirs{part(from)};
    works.push_back(backend().recv(theirs, from, kGatherTag));
    works.push_back(backend().send(mine, to, kGatherTag));
  }
  return std::make_unique<GlooMessages>(std::move(works), time_limit(), std::vector{in, out},
                                        std::vector<GlooMessages::Landing>{});
}

std::unique_ptr<CommWork> GlooGroup::start_counter_sum(const Call& call, const CallRecord& record) {
  // A tag per call: its messages cannot be taken for those of the next one.
  const int tag = kFirstSumTag + static_cast<int>(record.seq % 1'000'000);
  return std::make_unique<SumInRounds>(
      call.output, rank(), size(), time_limit(),
      [this, tag](std::vector<at::Tensor>& tensors, int peer) { return backend().send(tensors, peer, tag); },
      [this, tag](std::vector<at::Tensor>& tensors, int peer) { return backend().recv(tensors, peer, tag); });
}

// c10d's reduce_scatter over Gloo is an all_reduce of which each rank keeps a part: twice the traffic. An exchange of
// parts sends each byte once, as a ring would, and adds in rank order.
std::unique_ptr<CommWork> GlooGroup::start(const Call& call, std::span<const CallRecord> records) {
  if (call.op == Op::all_gather && call.input.numel() > 0 && call.output.is_cpu()) return start_gather(call);
  if (counters_in_rounds_ && call.op == Op::all_reduce && call.reduce == Reduce::sum && call.output.numel() == 1 &&
      call.output.is_cpu() && call.output.scalar_type() == at::kLong)
    return start_counter_sum(call, records.front());
  if (call.op != Op::reduce_scatter || call.input.numel() == 0) return C10dGroup::start(call, records);
  at::Tensor in = call.input.view(-1), mine = at::empty_like(in);
  std::vector<std::int64_t> even;
  auto work = backend().alltoall_base(mine, in, even, even);
  std::vector<at::Tensor> parts;
  const std::int64_t each = mine.numel() / size();
  for (int r = 0; r < size(); ++r) parts.push_back(mine.narrow(0, r * each, each));
  return std::make_unique<ExchangedParts>(std::move(work), std::move(parts), call.output, call.reduce);
}

std::unique_ptr<CommWork> GlooGroup::start_messages(const std::vector<Message>& messages) {
  const at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<at::Tensor> held;
  std::vector<GlooMessages::Landing> landings;
  for (const Message& m : messages) {
    at::Tensor host = m.tensor;
    if (m.tensor.is_cuda() && m.op == Op::send) host = m.tensor.cpu();
    if (m.tensor.is_cuda() && m.op == Op::recv) {
      host = at::empty_like(m.tensor, m.tensor.options().device(at::kCPU));
      landings.push_back({host, m.tensor});
    }
    held.push_back(host);
    std::vector<at::Tensor> tensors{host};
    works.push_back(m.op == Op::send ? backend().send(tensors, m.peer, kMessageTag)
                                     : backend().recv(tensors, m.peer, kMessageTag));
  }
  return std::make_unique<GlooMessages>(std::move(works), time_limit(), std::move(held), std::move(landings));
}

void GlooGroup::set_time_limit(double seconds) {
  backend().setTimeout(in_milliseconds(seconds));
  C10dGroup::set_time_limit(seconds);
}

// Note [Connections]. Gloo connects every pair of ranks of a group when the group is made: each rank reads the
// addresses of all others from the store and holds a connection to each. The group of the step check has all ranks
// of a job, of GPU jobs too: that would be N^2 reads and N connections per rank. In a world of more than
// full_mesh_ranks it uses a lazy device instead: a pair connects when it first talks, and a sum in rounds needs
// log2(N) of them. Such a device ends with its group and numbers its connections by rank, so it serves one group. A
// first send waits there until the other rank talks to this one, so three ranks that each send to the next before
// they receive would wait for ever: the step check does not, but users may. All other groups connect at once, and an
// address that a firewall blocks is found at the start.
std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address, const std::string& interface,
                                                     bool lazy) {
  ignore_broken_pipes();  // Gloo writes without MSG_NOSIGNAL, in its own thread and in that of the caller
  try {
    return interface.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(address, lazy)
                             : c10d::ProcessGroupGloo::createDeviceForInterface(interface, lazy);
  } catch (const std::exception& e) {
    throw ConfigError(text(interface.empty() ? "address " : "network interface ",
                           interface.empty() ? address : interface, ": this host cannot be reached there (", e.what(),
                           ")\n", "  fix: name another interface in GLOO_SOCKET_IFNAME"));
  }
}

c10::intrusive_ptr<c10d::Backend> gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               const std::shared_ptr<gloo::transport::Device>& device,
                                               const CommOptions& options) {
  auto gloo_options = c10d::ProcessGroupGloo::Options::create(in_milliseconds(options.init_timeout_s));
  gloo_options->devices = {device};
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, gloo_options);
  backend->setTimeout(in_milliseconds(options.timeout_s));
  return backend;
}

}  // namespace trireme
