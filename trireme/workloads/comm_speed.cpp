#include "trireme/workloads/comm_speed.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"

namespace trireme::workloads {
namespace {

/// A call of an operation on `count` elements, and how busy it makes a link: bus bandwidth = factor x bytes / time.
struct TimedCall {
  std::function<void()> run;
  std::int64_t count = 0;
  double bus_factor = 1;
};

TimedCall timed_call(const std::string& op, std::int64_t bytes, Group& group, at::Device device) {
  const auto options = at::TensorOptions(at::kFloat).device(device);
  const std::int64_t n = group.size(), part = std::max<std::int64_t>(1, bytes / 4 / n), whole = part * n;
  const double share = static_cast<double>(n - 1) / static_cast<double>(n);
  const at::Tensor large = at::ones({whole}, options), small = at::ones({part}, options);
  if (op == "all_reduce") return {[&group, large] { group.all_reduce_(large).wait(); }, whole, 2 * share};
  if (op == "all_gather") return {[&group, large, small] { group.all_gather_into(large, small).wait(); }, whole, share};
  if (op == "reduce_scatter")
    return {[&group, large, small] { group.reduce_scatter_into(small, large).wait(); }, whole, share};
  if (op == "all_to_all") return {[&group, large] { group.all_to_all(large).wait(); }, whole, share};
  if (op == "broadcast") return {[&group, large] { group.broadcast_(large, 0).wait(); }, whole, 1};
  const int next = (group.rank() + 1) % group.size(), before = (group.rank() + group.size() - 1) % group.size();
  const at::Tensor out = at::empty_like(large);
  return {[&group, large, out, next, before] {
            group.batch({Message::send(large, next), Message::recv(out, before)}).wait();
          },
          whole, 1};
}

/// The host waits until all work of the device is done.
void finish(at::Device device) {
  if (device.is_cuda()) at::zeros({1}, at::TensorOptions(at::kFloat).device(device)).item<float>();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

}  // namespace

const std::vector<std::string>& comm_op_names() {
  static const std::vector<std::string> names{"all_reduce", "all_gather", "reduce_scatter",
                                              "all_to_all", "broadcast",  "send_recv"};
  return names;
}

std::vector<CommSpeed> measure_comm(const CommSpeedOptions& options, const Environment& environment,
                                    const Variables& variables) {
  for (const std::string& op : options.ops)
    require<ConfigError>(std::ranges::find(comm_op_names(), op) != comm_op_names().end(), "operation ", op,
                         ": must be all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_recv");
  for (const std::int64_t size : options.sizes) require<ConfigError>(size >= 1, "a size of ", size, " bytes");
  require<ConfigError>(options.repetitions >= 1, options.repetitions, " repetitions: must be at least 1");
  require<ConfigError>(environment.world_size >= 2, "bench comm: ", environment.world_size,
                       " rank has nobody to communicate with\n  fix: -n 2, or more");
  ContextOptions context_options;
  context_options.backend = options.backend;
  const ParallelContext context({.data_parallel_size = environment.world_size}, environment, variables,
                                context_options);
  Group& group = context.mesh().world_group();
  const at::Device device = context.device();
  std::vector<CommSpeed> out;
  for (const std::string& op : options.ops)
    for (const std::int64_t size : options.sizes) {
      const TimedCall call = timed_call(op, size, group, device);
      call.run();  // connections and buffers
      const auto timed = [&] {
        finish(device);
        group.barrier().wait();
        const Stopwatch time;
        call.run();
        finish(device);
        return time.seconds();
      };
      const double first =
          group.all_reduce(at::full({1}, timed(), at::TensorOptions(at::kDouble).device(device)), Reduce::max)
              .wait()
              .item<double>();
      const auto affordable = static_cast<int>(std::clamp(options.seconds / std::max(first, 1e-9), 3.0, 1e6));
      std::vector<double> seconds;
      for (int i = 0; i < std::min(options.repetitions, affordable); ++i) seconds.push_back(timed());
      const at::Tensor all =
          group.all_gather(at::full({1}, median(seconds), at::TensorOptions(at::kDouble).device(device))).wait().cpu();
      CommSpeed& row = out.emplace_back();
      row.op = op;
      row.transport = group.transport();
      row.count = call.count;
      row.bytes = 4 * call.count;
      row.seconds = all.max().item<double>();
      row.fastest = all.min().item<double>();
      row.algbw = static_cast<double>(row.bytes) / row.seconds;
      row.busbw = row.algbw * call.bus_factor;
    }
  return out;
}

}  // namespace trireme::workloads
