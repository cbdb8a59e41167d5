#include "trireme/runtime/rank/uncaught.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"
#include "trireme/comm/watch/watchdog.hpp"
#include "trireme/runtime/rank/rank_main.hpp"

namespace trireme {
namespace {

// A terminate handler has no context, so these must be global.
std::atomic<Watchdog*> watchdog_of_this_process = nullptr;
std::atomic<std::thread::id> own_thread;

/// Why a call of this rank has failed, if `failure` is of a library: its first line, the rest is a stack. "": it is an
/// error of ours, or a limit of the system, which say more than the call.
std::string cause_of_foreign(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error&) {
    return "";
  } catch (const std::exception& e) {
    const std::string what = e.what();
    return limit_behind(e) ? "" : what.substr(0, what.find('\n'));
  } catch (...) {
    return "an exception of an unknown type";
  }
}

[[noreturn]] void on_terminate() {
  const std::exception_ptr failure = std::current_exception();
  Watchdog* watchdog = watchdog_of_this_process.exchange(nullptr);
  // Gloo throws in its own thread when a message is longer than the receive buffer.
  if (failure && watchdog && std::this_thread::get_id() != own_thread.load())
    if (const std::string cause = cause_of_foreign(failure); !cause.empty()) watchdog->end_process(cause);
  int code = static_cast<int>(ExitCode::internal);
  try {
    if (failure)
      code = report_failure(failure);
    else
      std::cerr << "error: std::terminate was called" << std::endl;
  } catch (...) {
    std::cerr << "error: an exception of an unknown type" << std::endl;
  }
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace

void end_process_on_uncaught_exceptions(Watchdog* watchdog) {
  watchdog_of_this_process = watchdog;
  own_thread = std::this_thread::get_id();
  std::set_terminate(on_terminate);
}

void forget_watchdog(Watchdog* watchdog) { watchdog_of_this_process.compare_exchange_strong(watchdog, nullptr); }

}  // namespace trireme
