#pragma once
// Says on stderr what a process waits for, after a few seconds: a wrong address is seen before the timeout.
#include <chrono>
#include <iostream>
#include <string>

#include "trireme/base/error.hpp"

namespace trireme {

class WaitNotes {
 public:
  /// `who`: "rank 1 of 4". `timeout_s` 0: none.
  WaitNotes(std::string who, double timeout_s) : who_(std::move(who)), timeout_s_(timeout_s) {}

  /// `what()`: "the store at tcp://h1:29500: no answer", asked only when it is time to say it.
  template <class What>
  void tell(const What& what) {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return;
    next_ = now + std::chrono::seconds(30);
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - start_).count();
    // One string: other threads and processes write to the same terminal.
    std::cerr << text("note: ", who_, " waits for ", what(), " (", waited, " s",
                      timeout_s_ > 0 ? text(" of at most ", timeout_s_, " s") : "", ")\n")
              << std::flush;
  }

 private:
  std::string who_;
  double timeout_s_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_ = start_ + std::chrono::seconds(3);
};

}  // namespace trireme
