#pragma once
// Saves that failed one after the other: how many, and since when.
#include <chrono>
#include <cstdint>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/base/wall_clock.hpp"

namespace trireme {

class FailedSaves {
 public:
  /// `failure`: empty if the save of `step` succeeded. StorageError after `most` failures in a row (0: never), with the
  /// first of them.
  void add(std::int64_t step, const std::string& failure, std::int64_t most) {
    if (failure.empty()) {
      count_ = 0;
      return;
    }
    if (count_++ == 0) {
      first_step_ = step;
      since_ = std::chrono::system_clock::now();
    }
    require<StorageError>(most == 0 || count_ < most, "the last ", count_, " checkpoints were not saved, from step ",
                          first_step_, " on (", utc_text(since_), "): further progress could be lost\n  ", failure,
                          "\n  the run resumes from its last good checkpoint when it is started again",
                          "\n  checkpoint.max_failures = ", most, " is the limit");
  }

 private:
  std::int64_t count_ = 0, first_step_ = 0;
  std::chrono::system_clock::time_point since_;
};

}  // namespace trireme
