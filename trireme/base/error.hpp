#pragma once
// Exception types, by who can act on the failure. Each type has one exit code; docs/errors.md lists them.
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
  storage = 74,
  preempted = 75,
  non_finite = 76,
  security = 77,
  interrupted = 130,
};

/// `what()` is the text after "error: ": first the objects and values involved, then, on separate lines indented by
/// two, "--> place", the reason, and "fix: ".
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

// The user can fix these.
struct ConfigError : detail::ErrorOf<ExitCode::config> {
  using ErrorOf::ErrorOf;
};
struct DataError : detail::ErrorOf<ExitCode::data> {
  using ErrorOf::ErrorOf;
};
struct CheckpointError : detail::ErrorOf<ExitCode::checkpoint> {
  using ErrorOf::ErrorOf;
};
/// The disk, or the network that it is on, does not work: a read that fails again and again, saves that cannot be
/// written. Nothing is known to be damaged.
struct StorageError : detail::ErrorOf<ExitCode::storage> {
  using ErrorOf::ErrorOf;
};
struct OutOfMemory : detail::ErrorOf<ExitCode::out_of_memory> {
  using ErrorOf::ErrorOf;
};
struct NonFiniteError : detail::ErrorOf<ExitCode::non_finite> {
  using ErrorOf::ErrorOf;
};
/// A check in training has found ranks that should be equal and are not.
struct ComparisonFailed : detail::ErrorOf<ExitCode::comparison_failed> {
  using ErrorOf::ErrorOf;
};
struct SecurityError : detail::ErrorOf<ExitCode::security> {
  using ErrorOf::ErrorOf;
};

/// No action needed: the user interrupted the run.
struct Interrupted : detail::ErrorOf<ExitCode::interrupted> {
  using ErrorOf::ErrorOf;
};

/// The launcher handles this: a peer was lost, or the ranks have diverged.
struct CommError : Error {
  enum class Kind { peer_lost, hang_or_mismatch };
  CommError(Kind kind, const std::string& what)
      : Error(kind == Kind::peer_lost ? ExitCode::peer_lost : ExitCode::hang_or_mismatch, what) {}
};

/// A bug in Trireme: an invariant was violated.
struct InternalError : detail::ErrorOf<ExitCode::internal> {
  using ErrorOf::ErrorOf;
};

/// Concatenates the parts as << would print them.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  static_cast<void>((out << ... << parts));
  return out.str();
}

/// The system's text for a value of errno: "No space left on device".
inline std::string errno_text(int error) { return std::generic_category().message(error); }

/// Throws `E` unless `ok`. The message is built only on failure.
template <class E = InternalError, class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    throw E(text(parts...));
}

}  // namespace trireme
