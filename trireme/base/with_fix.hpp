#pragma once
// Errors about files that users did not write themselves: all of them end with a fix.
#include <string>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {

namespace detail {
template <class E>
[[noreturn]] void throw_with_fix(const E& error, const std::string& fix) {
  const std::string what = error.what();
  if (what.find("\n  fix: ") != std::string::npos) throw;
  throw E(what + "\n  fix: " + fix);
}
}  // namespace detail

/// What f() returns. An error of it that names no fix gets this one.
template <class F>
decltype(auto) with_fix(const std::string& fix, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const ConfigError& e) {
    detail::throw_with_fix(e, fix);
  } catch (const DataError& e) {
    detail::throw_with_fix(e, fix);
  } catch (const CheckpointError& e) {
    detail::throw_with_fix(e, fix);
  } catch (const SecurityError& e) {
    detail::throw_with_fix(e, fix);
  }
}

}  // namespace trireme
