#pragma once
// Calls that may take longer than comm.timeout_s.
#include <optional>

#include "trireme/comm/calls/flight_recorder.hpp"
#include "trireme/comm/world.hpp"

namespace trireme {

/// During its lifetime, calls that this rank starts may take `seconds`. Scopes nest.
class [[nodiscard]] TimeLimit {
 public:
  TimeLimit(const World& world, double seconds) : TimeLimit(world, CallLimit{.seconds = seconds}) {}
  ~TimeLimit() { recorder_.set_limit(outer_); }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 protected:
  TimeLimit(const World& world, const CallLimit& limit)
      : recorder_(world.recorder()), outer_(recorder_.set_limit(limit)) {}

  FlightRecorder& recorder_;

 private:
  const std::optional<CallLimit> outer_;
};

/// Rank `worker` does long work between its calls, such as writing a file, while the others are in calls that need it.
/// All ranks create one, for the same worker. As long as the worker calls progress(), no call of the others times out;
/// after init_timeout_s without progress, or if the worker dies, they fail and name it.
class [[nodiscard]] LongWork : public TimeLimit {
 public:
  LongWork(const World& world, int worker);
  void progress() const { recorder_.add_progress(); }
};

}  // namespace trireme
