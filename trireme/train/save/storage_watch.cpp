#include "trireme/train/save/storage_watch.hpp"

#include <chrono>
#include <cstdlib>
#include <iostream>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme {

StorageWatch::StorageWatch(StorageWatchOptions options)
    : options_(std::move(options)), thread_([this] { look_while_it_lives(); }) {}

StorageWatch::~StorageWatch() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void StorageWatch::look_while_it_lives() {
  constexpr std::chrono::milliseconds kTurn(100);
  StallWatch watch(options_.limits);
  std::unique_lock lock(mutex_);
  for (std::uint64_t idle_turns = 0; !over_.wait_for(lock, kTurn, [this] { return is_over_; });) {
    if (!busy_) {
      // Time between operations is not theirs.
      watch.look(~++idle_turns);
      continue;
    }
    const StallWatch::State state = watch.look(done_);
    if (state != StallWatch::State::stalled && options_.is_alive) options_.is_alive();
    if (state == StallWatch::State::fine) continue;
    const std::string what = text(options_.path, ": the storage does not respond: no file operation has completed for ",
                                  human_seconds(watch.seconds()));
    if (state == StallWatch::State::warn) {
      std::cerr << text("warning: ", what, "\n  the run ends after ", human_seconds(options_.limits.timeout_s),
                        " without progress (checkpoint.stall_timeout_s)\n")
                << std::flush;
      continue;
    }
    std::cerr << text("error: ", what, "\n  ", options_.on_stall,
                      "\n  fix: check the disk or the network that the folder is on; checkpoint.stall_timeout_s is the "
                      "limit\n")
              << std::flush;
    std::_Exit(static_cast<int>(ExitCode::storage));
  }
}

}  // namespace trireme
