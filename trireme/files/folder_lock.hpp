#pragma once
// One writer per folder, over processes and hosts; a lock whose holder has died is taken over.
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <sys/types.h>

#include "trireme/base/error.hpp"

namespace trireme::files {

// Note [Folder lock]: the file .lock names its holder by host, boot, process-id namespace, pid, start time of the
// process and a random id.
//   - In the same namespace of the same boot the kernel says whether the holder lives: a dead one, or another process
//     with its pid, is replaced at once.
//   - Of any other holder only its sign of life is known: a thread sets the file's modification time every few seconds.
//     Whoever sees the file unchanged for `stale_after_s`, by the steady clock of its own machine, replaces it. Clocks
//     of two machines are never compared.
// The file is made complete (link(2) of a new file), and replaced or removed only by whoever has .lock-change-ID, where
// ID is that of the lock to be replaced: two that find one lock stale cannot both replace it, and a late one cannot
// replace the lock of the first. .lock-change-ID is itself such a lock, and is taken over like one.
// What cannot be excluded: a holder on another host that stands still for longer than `stale_after_s` and then goes on.
// check() tells it that it has lost the folder.
struct FolderLockOptions {
  double refresh_s = 5;
  double stale_after_s = 30;
  /// Where this process runs; given by tests that play another host.
  struct Place {
    std::string host, boot, process_space;
    bool operator==(const Place&) const = default;
  };
  std::optional<Place> place{};
  /// Called once, with a line for the user, before it waits for a sign of life.
  std::function<void(const std::string&)> on_wait{};
};

/// Another run holds the lock.
struct LockHeld : ConfigError {
  using ConfigError::ConfigError;
};

/// Whether nobody holds the lock of the folder, for all that can be known without waiting: there is none, or its holder
/// was a process of this host that is dead.
bool is_surely_free(const std::filesystem::path& folder);

class FolderLock {
 public:
  /// LockHeld with the holder's host and pid if the folder is locked, ConfigError if the lock cannot be made. Waits, at
  /// most about `stale_after_s`, for a sign of life if the holder is on another host.
  explicit FolderLock(std::filesystem::path folder, FolderLockOptions options = {});
  /// Removes the lock if it is still ours. Does nothing in a forked child.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// Reads the file.
  bool still_ours() const;
  /// ConfigError with the new holder if it is not: to be called before anything is changed for good.
  void check() const;

  std::filesystem::path path() const;  // of the lock file

 private:
  struct Refresher {
    std::mutex mutex{};
    std::condition_variable wake{};
    bool stop = false;
    std::thread thread{};
  };
  void refresh_until_stopped();

  std::filesystem::path folder_;
  FolderLockOptions options_;
  std::string id_;
  pid_t owner_;  // the process that took it
  std::unique_ptr<Refresher> refresher_ = std::make_unique<Refresher>();
};

}  // namespace trireme::files
