#pragma once
// For tests: what a power cut can leave of a recorded list of file operations.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/files/xxh3.hpp"
#include "trireme/testing/recording_fs.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {

/// Folders and files by number. The root is number 0.
struct DiskState {
  std::map<int, std::map<std::string, int>> folders{{0, {}}};
  std::map<int, std::string> files{};

  /// A text that is the same for the same tree.
  std::string tree(int folder = 0) const {
    std::string out;
    for (const auto& [name, number] : folders.at(folder))
      out += folders.contains(number)
                 ? text(name, "/{", tree(number), "}")
                 : text(name, "=", str(files::xxh3(std::as_bytes(std::span(files.at(number))))), ";");
    return out;
  }

  /// Writes the tree into an existing, empty folder.
  void materialise(const std::filesystem::path& target, int folder = 0) const {
    for (const auto& [name, number] : folders.at(folder)) {
      if (folders.contains(number)) {
        std::filesystem::create_directory(target / name);
        materialise(target / name, number);
      } else {
        const std::string& bytes = files.at(number);
        std::ofstream(target / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      }
    }
  }
};

// Note [Crash states]: the rules of ALICE (Pillai et al., OSDI 2014) for a file system that promises nothing but fsync.
//   - Names: a create, rename or removal is durable after an fsync of its folder. Before, it may be lost, alone or with
//     others: each prefix (a journal) and each subset (none) is possible. A rename is one change.
//   - Bytes: a write is durable after an fsync of its file. Before, each of its blocks, of 512 or 4096 bytes, may be
//     lost or not; lost blocks before the end of the file read as zeros.
//   - Sizes: a file may have its new size without its bytes, which read as zeros.
class CrashStates {
 public:
  /// `log`: operations within `root`, whose contents are durable at the beginning: to be constructed before they run.
  explicit CrashStates(const std::filesystem::path& root) : root_(root) { now_ = begin_ = on_disk(root, begin_, 0); }

  void record(const std::vector<FsOp>& log) {
    for (const FsOp& op : log) add(op);
  }
  std::size_t operations() const { return last_change_.size(); }

  /// A state that a crash after the first `operations` operations can leave.
  DiskState after(std::size_t operations, std::mt19937_64& random) const {
    const std::size_t changes = operations == 0 ? 0 : last_change_[operations - 1];
    std::vector<std::size_t> names, bytes;  // those that may be lost
    for (std::size_t i = 0; i < changes; ++i)
      if (changes_[i].durable_after > operations) (changes_[i].is_name() ? names : bytes).push_back(i);
    std::vector<char> kept(changes, 1);
    choose(names, kept, random);
    choose(bytes, kept, random);
    DiskState state = begin_;
    for (std::size_t i = 0; i < changes; ++i)
      if (kept[i] != 0) apply(changes_[i], changes_[i].durable_after > operations, state, random);
    return state;
  }

 private:
  static constexpr std::size_t kNever = ~std::size_t{0};

  struct Change {
    enum class Kind { add, remove, rename, folder, write, grow, truncate } kind{};
    int number = 0;  // of the folder whose names change, or of the file
    int entry = 0;
    std::string name{}, to{};
    std::uint64_t offset = 0;
    std::string data{};
    std::size_t durable_after = kNever;  // operations
    bool is_name() const { return kind == Kind::add || kind == Kind::remove || kind == Kind::rename; }
  };

  DiskState on_disk(const std::filesystem::path& folder, DiskState state, int number) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const int next = next_++;
      state.folders[number][entry.path().filename()] = next;
      if (entry.is_directory()) {
        state.folders[next] = {};
        state = on_disk(entry.path(), std::move(state), next);
      } else {
        state.files[next] = file_contents(entry.path());
      }
    }
    return state;
  }

  int number_of(const std::filesystem::path& path) const {
    int number = 0;
    for (const auto& part : path.lexically_relative(root_))
      if (part != ".") number = now_.folders.at(number).at(part);
    return number;
  }

  void change(Change change) {
    std::mt19937_64 unused;
    apply(change, false, now_, unused);
    changes_.push_back(std::move(change));
  }

  void add(const FsOp& op) {
    if (op.path.lexically_relative(root_).string().starts_with("..")) {  // above the root, which is there
      last_change_.push_back(changes_.size());
      return;
    }
    const std::string name = op.path.filename();
    const auto folder = [&] { return number_of(op.path.parent_path()); };
    using Kind = Change::Kind;
    switch (op.kind) {
      case FsKind::make_folder:
      case FsKind::create: {
        const int number = next_++;
        if (op.kind == FsKind::create) open_[op.path] = number;
        // The thing itself: empty, and without a name not reachable.
        change(
            {.kind = op.kind == FsKind::create ? Kind::truncate : Kind::folder, .number = number, .durable_after = 0});
        change({.kind = Kind::add, .number = folder(), .entry = number, .name = name});
        break;
      }
      case FsKind::write:
        change({.kind = Kind::grow, .number = open_.at(op.path), .offset = op.offset + op.data.size()});
        change({.kind = Kind::write, .number = open_.at(op.path), .offset = op.offset, .data = op.data});
        break;
      case FsKind::truncate: change({.kind = Kind::truncate, .number = open_.at(op.path), .offset = op.offset}); break;
      case FsKind::rename:
        require(op.path.parent_path() == op.to.parent_path(), "renames between folders are not modelled");
        change({.kind = Kind::rename,
                .number = folder(),
                .entry = number_of(op.path),
                .name = name,
                .to = op.to.filename()});
        break;
      case FsKind::remove_file:
      case FsKind::remove_folder:
        change({.kind = Kind::remove, .number = folder(), .entry = number_of(op.path), .name = name});
        break;
      case FsKind::sync: make_durable(open_.at(op.path), false); break;
      case FsKind::sync_folder: make_durable(number_of(op.path), true); break;
      case FsKind::close: break;
    }
    last_change_.push_back(changes_.size());
  }

  void make_durable(int number, bool names) {
    for (Change& each : changes_)
      if (each.number == number && each.is_name() == names && each.durable_after == kNever)
        each.durable_after = last_change_.size() + 1;
  }

  /// Of those that may be lost: none, all (most have no effect without the others), a prefix, all but one, only one, or
  /// any.
  static void choose(const std::vector<std::size_t>& which, std::vector<char>& kept, std::mt19937_64& random) {
    if (which.empty()) return;
    const std::size_t one = random() % which.size();
    const auto way = random() % 10;
    for (std::size_t i = 0; i < which.size(); ++i) {
      const bool keep = way == 0   ? false
                        : way <= 4 ? true
                        : way == 5 ? i <= one
                        : way == 6 ? i != one
                        : way == 7 ? i == one
                                   : random() % 2 == 0;
      kept[which[i]] = keep ? 1 : 0;
    }
  }

  static void apply(const Change& change, bool torn, DiskState& state, std::mt19937_64& random) {
    using Kind = Change::Kind;
    switch (change.kind) {
      case Kind::folder: state.folders[change.number]; break;
      case Kind::add: state.folders[change.number][change.name] = change.entry; break;
      case Kind::rename:
      case Kind::remove: {
        auto& names = state.folders[change.number];
        if (const auto at = names.find(change.name); at != names.end() && at->second == change.entry) names.erase(at);
        if (change.kind == Kind::rename) names[change.to] = change.entry;
        break;
      }
      case Kind::truncate: state.files[change.number].resize(change.offset, '\0'); break;
      case Kind::grow:
        if (std::string& file = state.files[change.number]; file.size() < change.offset)
          file.resize(change.offset, '\0');
        break;
      case Kind::write: {
        std::string& file = state.files[change.number];
        const std::uint64_t block = torn ? (random() % 2 == 0 ? 512 : 4096) : change.data.size() + 1;
        const bool whole = !torn || random() % 4 == 0;
        for (std::uint64_t done = 0; done < change.data.size();) {
          const std::uint64_t at = change.offset + done;
          const std::uint64_t size =
              whole ? change.data.size() : std::min(change.data.size() - done, block - at % block);
          if (whole || random() % 2 == 0) {
            if (file.size() < at + size) file.resize(at + size, '\0');
            file.replace(at, size, change.data, done, size);
          }
          done += size;
        }
        break;
      }
    }
  }

  std::filesystem::path root_;
  int next_ = 1;
  DiskState begin_, now_;
  std::map<std::filesystem::path, int> open_;  // by the name that a file was created with
  std::vector<Change> changes_;
  std::vector<std::size_t> last_change_;  // changes after each operation
};

}  // namespace trireme
