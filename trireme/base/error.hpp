#pragma once
// Failures, told apart by who can act on them. Each type has one exit code; docs/errors.md lists them.
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace trireme {

enum class ExitCode : int {
  done = 0,
  comparison_failed = 1,
  config = 64,
  data = 65,
  checkpoint = 66,
  internal = 70,
  peer_lost = 71,
  hang_or_mismatch = 72,
  out_of_memory = 73,
  preempted = 75,
  non_finite = 76,
  security = 77,
  interrupted = 130,
};

/// `what()` is the text a person reads after "error: ": first the objects and the numbers, then, on lines of their own
/// and indented by two, "--> place", why, and "fix: ".
class Error : public std::runtime_error {
 public:
  ExitCode exit_code() const { return code_; }

 protected:
  Error(ExitCode code, const std::string& what) : std::runtime_error(what), code_(code) {}

 private:
  ExitCode code_;
};

namespace detail {
template <ExitCode kCode>
struct ErrorOf : Error {
  explicit ErrorOf(const std::string& what) : Error(kCode, what) {}
};
}  // namespace detail

// The user acts on these.
struct ConfigError : detail::ErrorOf<ExitCode::config> {
  using ErrorOf::ErrorOf;
};
struct DataError : detail::ErrorOf<ExitCode::data> {
  using ErrorOf::ErrorOf;
};
struct CheckpointError : detail::ErrorOf<ExitCode::checkpoint> {
  using ErrorOf::ErrorOf;
};
struct OutOfMemory : detail::ErrorOf<ExitCode::out_of_memory> {
  using ErrorOf::ErrorOf;
};
struct NonFiniteError : detail::ErrorOf<ExitCode::non_finite> {
  using ErrorOf::ErrorOf;
};
struct SecurityError : detail::ErrorOf<ExitCode::security> {
  using ErrorOf::ErrorOf;
};

/// Nobody has to: a person has stopped what was going on.
struct Interrupted : detail::ErrorOf<ExitCode::interrupted> {
  using ErrorOf::ErrorOf;
};

/// The launcher acts: a peer was lost, or the ranks no longer do the same thing.
struct CommError : Error {
  enum class Kind { peer_lost, hang_or_mismatch };
  CommError(Kind kind, const std::string& what)
      : Error(kind == Kind::peer_lost ? ExitCode::peer_lost : ExitCode::hang_or_mismatch, what) {}
};

/// We act: a promise inside Trireme was broken.
struct InternalError : detail::ErrorOf<ExitCode::internal> {
  using ErrorOf::ErrorOf;
};

/// The parts written one after the other, as by <<.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return out.str();
}

/// The system's text for a value of errno: "No space left on device".
inline std::string errno_text(int error) { return std::generic_category().message(error); }

/// Throws `E` unless `ok`. The message is only built on failure.
template <class E = InternalError, class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(text(parts...));
}

}  // namespace trireme
