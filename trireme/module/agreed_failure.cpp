#include "trireme/module/agreed_failure.hpp"

#include <cstring>
#include <new>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

namespace trireme {
namespace {

/// Over a group that may take only tensors of a device.
std::vector<std::string> texts_of_all(Group& group, at::Device device, const std::string& own) {
  const at::Tensor size = at::full({1}, static_cast<std::int64_t>(own.size()), at::kLong).to(device);
  const at::Tensor sizes = group.all_gather(size).wait().cpu();
  const std::int64_t longest = sizes.max().item<std::int64_t>();
  std::vector<std::string> out(static_cast<std::size_t>(group.size()));
  if (longest == 0) return out;
  at::Tensor bytes = at::zeros({longest}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
  const at::Tensor all = group.all_gather(bytes.to(device)).wait().cpu();
  for (std::size_t r = 0; r < out.size(); ++r)
    out[r].assign(static_cast<const char*>(all.const_data_ptr()) + static_cast<std::int64_t>(r) * longest,
                  static_cast<std::size_t>(sizes[static_cast<std::int64_t>(r)].item<std::int64_t>()));
  return out;
}

[[noreturn]] void throw_as(ExitCode code, const std::string& what) {
  switch (code) {
    case ExitCode::comparison_failed: throw ComparisonFailed(what);
    case ExitCode::config: throw ConfigError(what);
    case ExitCode::data: throw DataError(what);
    case ExitCode::internal: throw InternalError(what);
    case ExitCode::out_of_memory: throw OutOfMemory(what);
    case ExitCode::storage: throw StorageError(what);
    case ExitCode::non_finite: throw NonFiniteError(what);
    case ExitCode::security: throw SecurityError(what);
    case ExitCode::interrupted: throw Interrupted(what);
    default: throw CheckpointError(what);
  }
}

}  // namespace

Failure failure_of(const std::function<void()>& action) {
  try {
    action();
    return {};
  } catch (const CommError&) {
    throw;
  } catch (const Error& e) {
    return {e.exit_code(), e.what()};
  } catch (const std::bad_alloc& e) {
    return {ExitCode::out_of_memory, e.what()};
  } catch (const c10::Error& e) {
    return {ExitCode::checkpoint, e.what_without_backtrace()};
  } catch (const std::exception& e) {
    return {ExitCode::checkpoint, e.what()};
  }
}

std::vector<std::string> agree_on(Group& group, at::Device device, const Failure& own, const std::string& words) {
  const bool failed = own.code != ExitCode::done;
  std::vector<std::string> all =
      texts_of_all(group, device, failed ? text(static_cast<int>(own.code), "\n", own.what) : text("0\n", words));
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::size_t line = all[r].find('\n');
    const auto code = static_cast<ExitCode>(std::stoi(all[r].substr(0, line)));
    all[r].erase(0, line + 1);
    if (code != ExitCode::done) throw_as(code, group.size() == 1 ? all[r] : text("rank ", r, ": ", all[r]));
  }
  return all;
}

std::string broadcast_text(Group& group, at::Device device, const std::string& words, int root) {
  const at::Tensor own = at::full({1}, static_cast<std::int64_t>(words.size()), at::kLong).to(device);
  const auto size = group.broadcast_(own, root).wait().item<std::int64_t>();
  if (size == 0) return "";
  at::Tensor bytes = at::zeros({size}, at::kByte);
  if (group.rank() == root) std::memcpy(bytes.mutable_data_ptr(), words.data(), words.size());
  bytes = group.broadcast_(bytes.to(device), root).wait().cpu();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(size)};
}

}  // namespace trireme
