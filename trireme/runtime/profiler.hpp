#pragma once
// libtorch's profiler (Kineto) over some steps of a training: every operation on CPU and GPU, per rank. The files open
// in TensorBoard's profiler plugin, ui.perfetto.dev and Holistic Trace Analysis.
#include <cstdint>
#include <filesystem>
#include <string>

namespace trireme {

struct ProfilerOptions {
  std::int64_t wait = 1;    // steps before anything is recorded
  std::int64_t warmup = 1;  // then steps that are recorded and dropped: the first ones of a profiler are slow
  std::int64_t active = 3;  // then steps that are kept
  bool with_stack = false;  // also the sizes of inputs and, as a C++ program has no Python stack, the modules around
                            // an operation as nested annotations
  std::filesystem::path folder = "profile";
  int rank = 0, world_size = 1;
  std::string backend = "gloo";
};

///   Profiler profiler({.folder = "log", .rank = run->rank(), .world_size = run->world_size()});
///   for (...) { forward; backward; optimizer.step(); profiler.step(); }
/// Writes FOLDER/rankR.stepN.pt.trace.json.gz after the last active step, or in the destructor if fewer were done. One
/// per process at a time. ConfigError if it cannot write.
class Profiler {
 public:
  explicit Profiler(ProfilerOptions options);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// At the end of a step.
  void step();
  /// Whether the steps now are kept.
  bool is_active() const { return state_ == State::active; }
  bool with_stack() const { return options_.with_stack; }

 private:
  enum class State { waiting, warming_up, active, done };
  void begin_next();
  void write();

  const ProfilerOptions options_;
  State state_ = State::waiting;
  std::int64_t steps_ = 0;  // of this state
  std::int64_t all_steps_ = 0;
};

}  // namespace trireme
