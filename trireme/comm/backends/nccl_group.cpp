// Group over NCCL: one GPU per rank. A build without CUDA uses no_nccl.cpp instead.
#include <deque>
#include <exception>
#include <optional>

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <c10/cuda/CUDAGuard.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "trireme/comm/backends/c10d_world.hpp"

namespace trireme {
namespace {

class NcclGroup final : public C10dGroup {
 public:
  NcclGroup(Membership members, std::shared_ptr<FlightRecorder> recorder, CommOptions options,
            c10::intrusive_ptr<c10d::Backend> backend, c10::intrusive_ptr<c10d::Backend> checks,
            std::shared_ptr<Watchdog> watchdog, at::Device device)
      : C10dGroup(std::move(members), std::move(recorder), std::move(options), std::move(backend), std::move(checks),
                  std::move(watchdog)),
        device_(device) {}
  std::string transport() const override { return "nccl"; }
  /// NCCL needs an explicit shutdown. During stack unwinding a peer may be gone: then abort without waiting.
  ~NcclGroup() override {
    try {
      if (std::uncaught_exceptions() == 0)
        backend().shutdown();
      else
        backend().abort();
    } catch (const std::exception&) {  // nothing more can be done
    }
  }

  std::optional<at::Device> only_device() const override { return device_; }

 protected:
  std::unique_ptr<CommWork> start_replay(const CallRecord& record) override {
    // The time of a call counts from when it is enqueued, so the host is not more than two graphs ahead.
    if (replays_.size() == 2) {
      replays_.front()->synchronize();
      replays_.pop_front();
    }
    const auto done = std::make_shared<at::cuda::CUDAEvent>(cudaEventDisableTiming);
    done->record();
    replays_.push_back(done);
    watchdog().watch(membership(), record, [done] { return done->query(); });
    return nullptr;
  }

  /// All of them in one NCCL group call: in any order between the ranks, and without a communicator per pair.
  std::unique_ptr<CommWork> start_messages(const std::vector<Message>& messages) override {
    if (messages.empty()) return nullptr;
    backend().startCoalescing();
    for (const Message& m : messages) {
      std::vector<at::Tensor> tensors{m.tensor};
      if (m.op == Op::send)
        backend().send(tensors, m.peer, 0);
      else
        backend().recv(tensors, m.peer, 0);
    }
    return flight_of(backend().endCoalescing(), recorder().newest());
  }

  /// wait() only orders streams: the watchdog detects hangs. It polls an event, not the work: the work owns the tensors
  /// of the call, and they would stay allocated until the watchdog's next look.
  std::unique_ptr<CommWork> flight_of(c10::intrusive_ptr<c10d::Work> work, const CallRecord& record) override {
    // An event of a CUDA graph says nothing until the graph runs, and is not to be asked: see start_replay().
    const bool in_graph = at::cuda::currentStreamCaptureStatusMayInitCtx() != at::cuda::CaptureStatus::None;
    if (in_graph) return C10dGroup::flight_of(std::move(work), record);
    if (record.op == Op::barrier) {  // its wait() blocks the host; it has no tensors of ours
      watchdog().watch(membership(), record, [work] { return work->isCompleted(); });
    } else {
      if (!after_calls_)
        after_calls_ = at::cuda::getStreamFromPool(/*isHighPriority=*/false, at::cuda::current_device());
      const auto done = std::make_shared<at::cuda::CUDAEvent>(cudaEventDisableTiming);
      const c10::cuda::CUDAStreamGuard on(*after_calls_);
      // Orders after_calls_ behind the call. The Pending has the tensors until the user's stream is ordered, too.
      work->wait();
      done->record(*after_calls_);
      watchdog().watch(membership(), record, [done] { return done->query(); });
    }
    return C10dGroup::flight_of(std::move(work), record);
  }

 private:
  const at::Device device_;
  std::optional<c10::cuda::CUDAStream> after_calls_;  // carries only the events
  std::deque<std::shared_ptr<at::cuda::CUDAEvent>> replays_;
};

}  // namespace

std::unique_ptr<Group> connect_nccl(Membership members, const std::shared_ptr<FlightRecorder>& recorder,
                                    const CommOptions& options, const c10::intrusive_ptr<c10d::Store>& store,
                                    at::Device device, c10::intrusive_ptr<c10d::Backend> checks,
                                    std::shared_ptr<Watchdog> watchdog) {
  auto nccl_options = c10d::ProcessGroupNCCL::Options::create();
  // Timeouts are our watchdog's: NCCL's own ends the process without naming the missing ranks.
  nccl_options->timeout = in_milliseconds(kNoTimeout);
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, members.rank, members.size(), nccl_options);
  backend->eagerConnectSingleDevice(device);
  return std::make_unique<NcclGroup>(std::move(members), recorder, options, std::move(backend), std::move(checks),
                                     std::move(watchdog), device);
}

}  // namespace trireme
