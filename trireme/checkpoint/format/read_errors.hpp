#pragma once
// What a file of a checkpoint that cannot be read is: damage, a link, or storage that fails, which is tried again.
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/files/random_reader.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::checkpoint {

inline constexpr const char* kDamagedFix =
    "\n  fix: fetch the files again from where they came, or use another checkpoint";
inline constexpr const char* kLinkFix =
    "\n  fix: put the file itself there; do not use a checkpoint that you did not make yourself";

inline constexpr const char* kStorageFix =
    "\n  fix: check the disk or the network that the folder is on; then start again: nothing was changed";

inline constexpr const char* kPermissionFix = "\n  fix: make it readable for this user; nothing was changed";

/// Until it can be read. A moment later a network, or a disk, may have recovered.
template <class F>
auto with_retries(const F& body) {
  for (const int wait_ms : {100, 500, 2000}) try {
      return body();
    } catch (const files::ReadFailed&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
    }
  return body();
}

inline std::string first_line(const std::string& what) { return what.substr(0, what.find('\n')); }

/// files/ calls the same faults DataError: there they are in token files.
template <class F>
auto as_checkpoint_error(const F& body) {
  try {
    return with_retries(body);
  } catch (const files::ReadFailed& error) {
    throw StorageError(text(first_line(error.what()), ", several times", kStorageFix));
  } catch (const DataError& error) {
    throw CheckpointError(error.what());
  }
}

/// For a file of a checkpoint that could not be opened: whether it is missing, which is a fault, or cannot be read.
[[noreturn]] inline void throw_not_opened(const std::string& shown, int error) {
  require<SecurityError>(error != ELOOP, shown, ": is a symlink", kLinkFix);
  require<CheckpointError>(error != ENOENT && error != ENOTDIR, shown, ": is missing", kDamagedFix);
  require<StorageError>(error != EACCES && error != EPERM, shown, ": cannot be opened: ", errno_text(error),
                        kPermissionFix);
  throw files::ReadFailed(text(shown, ": cannot be opened: ", errno_text(error)));
}

/// "layers.0.norm.weight exp_avg [0:12]", for messages.
inline std::string slice_name(const StoredTensor& tensor, const Box& box) {
  return text(files::shown_name(tensor.name), " ", files::shown_name(tensor.kind), " ", str(box));
}

}  // namespace trireme::checkpoint
