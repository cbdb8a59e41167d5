#include "trireme/runtime/profiler.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/cuda.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/gzip.hpp"
#include "trireme/base/json_text.hpp"

namespace trireme {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::set<ActivityType> activities() {
  std::set<ActivityType> out{ActivityType::CPU};
  if (torch::cuda::is_available()) out.insert(ActivityType::CUDA);
  return out;
}

ProfilerConfig config_of(const ProfilerOptions& options) {
  return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/options.with_stack, /*profile_memory=*/true,
                        options.with_stack, /*with_flops=*/false, /*with_modules=*/false);
}

}  // namespace

Profiler::Profiler(ProfilerOptions options) : options_(std::move(options)) {
  require<ConfigError>(options_.wait >= 0 && options_.warmup >= 0 && options_.active >= 1, "profiler: wait ",
                       options_.wait, ", warmup ", options_.warmup, ", active ", options_.active,
                       ": must be at least 0, 0 and 1");
  begin_next();
}

Profiler::~Profiler() {
  try {
    if (state_ == State::active && steps_ > 0) write();
    if (state_ == State::active) kineto::disableProfiler();
    if (state_ == State::warming_up) {  // prepared, and never enabled
      kineto::enableProfiler(config_of(options_), activities());
      kineto::disableProfiler();
    }
  } catch (const std::exception&) {  // an end that is not the normal one
  }
}

/// From one state to the next one that has steps.
void Profiler::begin_next() {
  if (state_ == State::waiting && steps_ >= options_.wait) {
    state_ = State::warming_up;
    steps_ = 0;
    kineto::prepareProfiler(config_of(options_), activities());
  }
  if (state_ == State::warming_up && steps_ >= options_.warmup) {
    state_ = State::active;
    steps_ = 0;
    kineto::enableProfiler(config_of(options_), activities());
  }
  if (state_ == State::active && steps_ >= options_.active) {
    write();
    state_ = State::done;
  }
}

void Profiler::step() {
  if (state_ == State::done) return;
  ++steps_;
  ++all_steps_;
  begin_next();
}

/// Kineto writes JSON without saying which rank it is of: that is added at its beginning.
void Profiler::write() {
  const std::unique_ptr<kineto::ProfilerResult> result = kineto::disableProfiler();
  make_folder(options_.folder);
  const std::string name = text("rank", options_.rank, ".step", all_steps_, ".pt.trace.json");
  const std::filesystem::path plain = options_.folder / ("." + name), file = options_.folder / (name + ".gz");
  result->save(plain.string());
  std::ostringstream json;
  json << std::ifstream(plain, std::ios::binary).rdbuf();
  std::string trace = json.str();
  std::filesystem::remove(plain);
  const std::size_t brace = trace.find('{');
  require<ConfigError>(brace != std::string::npos, plain.string(), ": libtorch's profiler could not write its trace");
  trace.insert(brace + 1, text(R"("distributedInfo": {"backend": )", json_string(options_.backend), R"(, "rank": )",
                               options_.rank, R"(, "world_size": )", options_.world_size, "},\n"));
  replace_file(file, gzip(trace));
  state_ = State::done;
}

}  // namespace trireme
