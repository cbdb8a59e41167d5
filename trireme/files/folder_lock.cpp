#include "trireme/files/folder_lock.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/owned_fd.hpp"
#include "trireme/base/process_start.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/files/random_reader.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

namespace stdfs = std::filesystem;
using Place = FolderLockOptions::Place;
using SteadyClock = std::chrono::steady_clock;

constexpr const char *kLock = ".lock", *kNew = ".lock-new-", *kChange = ".lock-change-";
constexpr std::size_t kMaxLockBytes = 4096;
constexpr auto kPoll = std::chrono::milliseconds(50);

std::string first_line(const stdfs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Place this_place() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::error_code unknown;
  return {.host = host.data(),
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .process_space = stdfs::read_symlink("/proc/self/ns/pid", unknown).string()};
}

/// What a lock file says. Of one that is damaged, or being written, only the stamp is known.
struct Holder {
  Place place{};
  pid_t pid = 0;
  std::string start{}, id{};
  FileStamp stamp{};

  /// The holder cannot be told from any other process: only its signs of life count.
  bool is_elsewhere(const Place& here) const { return id.empty() || place != here; }
  bool is_dead(const Place& here) const { return !is_elsewhere(here) && process_start_ticks(pid) != start; }
  std::string shown() const {
    return id.empty() ? "an unknown process" : text("pid ", pid, " on host ", shown_name(place.host));
  }
};

std::string lock_text(const Place& place, const std::string& id) {
  return text("host=", place.host, "\nboot=", place.boot, "\nprocess_space=", place.process_space, "\npid=", ::getpid(),
              "\nstart=", process_start_ticks(::getpid()), "\nid=", id, "\n");
}

/// nullopt if there is no file.
std::optional<Holder> holder_of(const stdfs::path& lock) {
  // Opened each time: a network file system then asks the server for the modification time.
  const OwnedFd fd(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && errno == ENOENT) return std::nullopt;
  struct stat facts{};
  require<ConfigError>(static_cast<bool>(fd) && ::fstat(fd.get(), &facts) == 0 && S_ISREG(facts.st_mode), lock.string(),
                       ": cannot be read as a lock file: ", fd ? "not a regular file" : errno_text(errno),
                       "\n  fix: remove it, if no run writes to this folder");
  Holder out{.stamp = {.device = facts.st_dev,
                       .inode = facts.st_ino,
                       .size = static_cast<std::uint64_t>(facts.st_size),
                       .changed_s = facts.st_mtim.tv_sec,
                       .changed_ns = facts.st_mtim.tv_nsec}};
  std::string bytes(kMaxLockBytes, '\0');
  const ssize_t got = ::pread(fd.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  std::map<std::string, std::string> values;
  std::istringstream lines(bytes);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find('='); at != std::string::npos)
      values[line.substr(0, at)] = line.substr(at + 1);
  out.place = {.host = values["host"], .boot = values["boot"], .process_space = values["process_space"]};
  out.start = values["start"];
  const std::string& pid = values["pid"];
  std::from_chars(pid.data(), pid.data() + pid.size(), out.pid);
  const std::string& id = values["id"];  // a name is made of it
  if (id.size() == 32 && id.find_first_not_of("0123456789abcdef") == std::string::npos && bytes.ends_with('\n') &&
      out.pid > 0)
    out.id = id;
  return out;
}

/// Makes `lock` with these contents unless it is there. 0, EEXIST, ENOENT (somebody has cleaned up: try again), or an
/// errno.
int make_lock(const stdfs::path& lock, const std::string& contents, const std::string& id) {
  const stdfs::path fresh = lock.parent_path() / (kNew + id);
  const auto write_new = [&](const stdfs::path& path) {
    const OwnedFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    return fd ? write_all(fd.get(), contents) : errno;
  };
  if (const int error = write_new(fresh); error != 0) {
    ::unlink(fresh.c_str());
    return error == ENOENT ? EACCES : error;
  }
  int error = ::link(fresh.c_str(), lock.c_str()) == 0 ? 0 : errno;
  struct stat facts{};
  // Over NFS the answer may be lost after the server has made the link.
  if (error != 0 && ::stat(fresh.c_str(), &facts) == 0 && facts.st_nlink == 2) error = 0;
  ::unlink(fresh.c_str());
  const bool no_links = error == EPERM || error == ENOTSUP || error == ENOSYS || error == EMLINK;
  return no_links ? write_new(lock) : error;
}

/// One attempt of one process to get the lock of a folder.
class Taker {
 public:
  Taker(const stdfs::path& folder, const FolderLockOptions& options, std::string id)
      : folder_(folder),
        place_(options.place.value_or(this_place())),
        stale_after_(options.stale_after_s),
        on_wait_(options.on_wait),
        id_(std::move(id)),
        contents_(lock_text(place_, id_)) {}

  void take() {
    const stdfs::path lock = folder_ / kLock;
    while (true) {
      const int error = make_lock(lock, contents_, id_);
      if (error == 0) break;
      require<ConfigError>(error == EEXIST || error == ENOENT, lock.string(), ": cannot be made: ", errno_text(error),
                           "\n  fix: use a folder that this user may write to");
      const std::optional<Holder> holder = holder_of(lock);
      if (!holder) continue;
      if (is_stale(lock, *holder)) {
        if (replace(lock, holder->id, [&] { return replaced_by_ours(lock); })) break;
        std::this_thread::sleep_for(kPoll);  // somebody else does
        continue;
      }
      throw LockHeld(text(folder_.string(), ": another run writes to this folder: ", holder->shown(), " holds ",
                          lock.string(),
                          "\n  fix: stop that run, or use another folder; if there is no such run, remove the file"));
    }
    remove_old_files();
  }

  /// Does `action` while nobody else may change the lock `id` at `lock`. False if that is not the lock any more, if
  /// somebody else is about to change it, or if `action` fails.
  bool replace(const stdfs::path& lock, const std::string& id, const std::function<bool()>& action) const {
    // A damaged lock has no id: all that want to replace it meet at one name.
    const stdfs::path right = folder_ / (kChange + (id.empty() ? "unknown" : id));
    if (make_lock(right, contents_, id_) != 0) {
      const std::optional<Holder> other = holder_of(right);
      if (other && other->id != id_ && is_stale(right, *other))
        replace(right, other->id, [&] { return ::unlink(right.c_str()) == 0; });
      return false;
    }
    const std::optional<Holder> now = holder_of(lock);
    const bool done = now && now->id == id && action();
    if (const auto still = holder_of(right); still && still->id == id_) ::unlink(right.c_str());
    return done;
  }

 private:
  /// Waits for a sign of life, if the holder is elsewhere.
  bool is_stale(const stdfs::path& lock, const Holder& holder) const {
    if (!holder.is_elsewhere(place_)) return holder.is_dead(place_);
    if (on_wait_)
      on_wait_(text(lock.string(), " is held by ", holder.shown(), ": waiting up to ", stale_after_,
                    " s for a sign of life"));
    const auto begin = SteadyClock::now();
    while (SteadyClock::now() - begin < std::chrono::duration<double>(stale_after_)) {
      std::this_thread::sleep_for(kPoll);
      const std::optional<Holder> now = holder_of(lock);
      if (!now || now->stamp != holder.stamp || now->id != holder.id) return false;
    }
    return true;
  }

  bool replaced_by_ours(const stdfs::path& lock) const {
    const stdfs::path fresh = folder_ / (kNew + id_);
    const OwnedFd fd(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    const bool done = fd && write_all(fd.get(), contents_) == 0 && ::rename(fresh.c_str(), lock.c_str()) == 0;
    if (!done) ::unlink(fresh.c_str());
    return done;
  }

  /// What takers that died have left. One that lives and loses its new file begins again; a right to change a lock that
  /// is no more is worth nothing.
  void remove_old_files() const {
    std::error_code failed;
    std::vector<stdfs::path> old;
    for (auto entry = stdfs::directory_iterator(folder_, failed); !failed && entry != stdfs::directory_iterator();
         entry.increment(failed)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with(kNew) || (name.starts_with(kChange) && name != kChange + id_)) old.push_back(entry->path());
    }
    for (const stdfs::path& each : old) ::unlink(each.c_str());
  }

  const stdfs::path& folder_;
  Place place_;
  double stale_after_;
  std::function<void(const std::string&)> on_wait_;
  std::string id_, contents_;
};

}  // namespace

bool is_surely_free(const stdfs::path& folder) {
  const std::optional<Holder> holder = holder_of(folder / kLock);
  if (!holder) return true;
  const FolderLockOptions::Place here = this_place();
  return !holder->is_elsewhere(here) && holder->is_dead(here);
}

FolderLock::FolderLock(stdfs::path folder, FolderLockOptions options)
    : folder_(std::move(folder)), options_(std::move(options)), id_(hex_digits(random_bytes(16))), owner_(::getpid()) {
  Taker(folder_, options_, id_).take();
  refresher_->thread = std::thread([this] { refresh_until_stopped(); });
}

FolderLock::~FolderLock() {
  if (::getpid() != owner_) {
    // The thread was not copied by fork, but what it waits for was: destroying that would wait for the thread.
    static_cast<void>(refresher_.release());
    return;
  }
  {
    const std::lock_guard lock(refresher_->mutex);
    refresher_->stop = true;
  }
  refresher_->wake.notify_all();
  refresher_->thread.join();
  try {
    Taker(folder_, options_, hex_digits(random_bytes(16))).replace(path(), id_, [&] {
      return ::unlink(path().c_str()) == 0;
    });
  } catch (const std::exception&) {  // it stays, and is stale when this process has ended
  }
}

stdfs::path FolderLock::path() const { return folder_ / kLock; }

bool FolderLock::still_ours() const {
  const std::optional<Holder> holder = holder_of(path());
  return holder && holder->id == id_;
}

void FolderLock::check() const {
  const std::optional<Holder> holder = holder_of(path());
  require<ConfigError>(holder && holder->id == id_, folder_.string(), ": this run has lost its lock ", path().string(),
                       holder ? text(": ", holder->shown(), " has taken it") : ": it was removed",
                       "\n  fix: let one run at a time write to a folder; this one stood still for more than ",
                       options_.stale_after_s, " s, or the file was removed by hand");
}

void FolderLock::refresh_until_stopped() {
  std::unique_lock lock(refresher_->mutex);
  const auto pause = std::chrono::duration<double>(options_.refresh_s);
  while (!refresher_->wake.wait_for(lock, pause, [&] { return refresher_->stop; })) {
    try {
      if (still_ours()) ::utimensat(AT_FDCWD, path().c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
    } catch (const std::exception&) {  // a network file system that is away for a moment
    }
  }
}

}  // namespace trireme::files
