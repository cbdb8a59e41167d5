#include "trireme/checkpoint/format/commit.hpp"

#include <algorithm>
#include <cerrno>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/file_operations.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/files/open_beneath.hpp"

namespace trireme::checkpoint {
namespace {

namespace stdfs = std::filesystem;

/// Removes a file, a symlink (not what it leads to), or a folder with what is in it. Goes on after an error, and
/// returns the first.
int remove_tree(files::Fs& fs, const stdfs::path& path) {
  if (!exists_at_all(path)) return 0;
  if (!is_real_folder(path)) return fs.remove_file(path);
  std::vector<std::string> names;
  int error = list_names(path, names);
  // First, so that what is left after a crash is not taken for a checkpoint, whatever it is called.
  std::ranges::stable_partition(names, [](const std::string& name) { return name == kManifestName; });
  for (const std::string& name : names)
    if (const int each = remove_tree(fs, path / name); error == 0) error = each;
  const int last = fs.remove_folder(path);
  return error != 0 ? error : last;
}

/// Whether all that is in the folder can and may be removed: nothing is begun that cannot be finished.
/// `own`: the folders that are a part of the checkpoint; `within`: the path of this one in it.
bool may_be_removed(const stdfs::path& folder, const stdfs::path& within, const std::set<stdfs::path>& own) {
  // Another user's checkpoint in a shared folder: it could be renamed, but its files would stay.
  if (::faccessat(AT_FDCWD, folder.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) != 0) return false;
  std::vector<std::string> names;
  if (list_names(folder, names) != 0) return false;
  for (const std::string& name : names)
    if (is_real_folder(folder / name) &&
        !(own.contains(within / name) && may_be_removed(folder / name, within / name, own)))
      return false;  // somebody has put something of their own here
  return true;
}

/// The folders that the files of a checkpoint are in, relative to it; those inside others come later.
std::set<stdfs::path> folders_of(const Manifest& manifest) {
  std::set<stdfs::path> out;
  for (const StoredFile& file : manifest.files)
    for (stdfs::path inner = stdfs::path(file.name).parent_path(); !inner.empty(); inner = inner.parent_path())
      out.insert(inner);
  return out;
}

std::vector<stdfs::path> unfinished_in(const stdfs::path& folder, bool only_trash) {
  std::vector<std::string> names;
  const int error = list_names(folder, names);
  require<StorageError>(error == 0 || error == ENOENT, folder.string(), ": cannot be listed: ", errno_text(error),
                        error == EACCES ? "\n  fix: make it readable for this user"
                                        : "\n  fix: check the disk or the network that the folder is on");
  std::vector<stdfs::path> out;
  for (const std::string& name : names)
    if (is_unfinished_name(name) && (!only_trash || name.starts_with(".trash-"))) out.push_back(folder / name);
  return out;
}

/// A hint for people: that it cannot be written is no reason to give up a checkpoint that is complete.
void replace_latest(files::Fs& fs, const SaveTarget& target) {
  const stdfs::path temporary = target.folder / temporary_latest_name(target.id);
  try {
    write_new_file(fs, temporary, step_name(target.step) + "\n");
    if (fs.rename(temporary, target.folder / "latest") == 0) return;
  } catch (const CheckpointError&) {
  }
  fs.remove_file(temporary);
}

void check_target(const SaveTarget& target) {
  require(is_id(target.id) && target.step >= 0, "a save of step ", target.step, " with the id '", target.id, "'");
}

void check_not_there(const SaveTarget& target) {
  require<CheckpointError>(!exists_at_all(target.final()) || !why_not_valid(target.final()).empty(),
                           target.final().string(), ": this step is already saved",
                           "\n  fix: remove it first, or save to another folder");
}

}  // namespace

stdfs::path SaveTarget::temporary() const { return folder / temporary_step_name(step, id); }
stdfs::path SaveTarget::final() const { return folder / step_name(step); }

void begin_save(files::Fs& fs, const SaveTarget& target) {
  check_target(target);
  const int made = fs.make_folder(target.folder);
  check_done(made == EEXIST ? 0 : made, target.folder, "be made");
  // FOLDER is durable when each folder above it is, and whoever made those may not have seen to it. Old ones need not
  // even be readable: only for a new FOLDER an error counts.
  const stdfs::path above = stdfs::absolute(target.folder).lexically_normal().parent_path();
  const int synced = fs.sync_folder(above);
  check_done(made == 0 ? synced : 0, above, "be flushed to disk");
  for (stdfs::path next = above; next.has_relative_path(); next = next.parent_path())
    fs.sync_folder(next.parent_path());
  check_not_there(target);
  const int temporary = fs.make_folder(target.temporary());
  check_done(temporary == EEXIST ? 0 : temporary, target.temporary(), "be made");
}

void commit(files::Fs& fs, const SaveTarget& target, Manifest manifest, const SmallFiles& small_files) {
  check_target(target);
  require(manifest.id == target.id && manifest.training.step == target.step, target.temporary().string(),
          ": its manifest is of step ", manifest.training.step, " with the id '", manifest.id, "'");
  for (const auto& [name, contents] : small_files) {
    require(files::is_path_beneath(name) && !is_rank_file(name) && name != kManifestName, "a small file named '", name,
            "'");
    make_folders(fs, target.temporary(), name);
    write_new_file(fs, target.temporary() / name, contents);
    manifest.files.push_back({.name = name,
                              .bytes = contents.size(),
                              .header_bytes = contents.size(),
                              .header_hash = files::xxh3(std::as_bytes(std::span(contents)))});
  }
  write_new_file(fs, target.temporary() / kManifestName, to_json(manifest));
  for (const stdfs::path& inner : folders_of(manifest))
    check_done(fs.sync_folder(target.temporary() / inner), target.temporary() / inner, "be flushed to disk");
  check_done(fs.sync_folder(target.temporary()), target.temporary(), "be flushed to disk");
  const std::string fault = why_not_valid(target.temporary());
  require<CheckpointError>(fault.empty(), "the save of step ", target.step, " is not complete: ", fault,
                           "\n  fix: if a rank's file is missing: save to a file system that all hosts share");

  check_not_there(target);
  const stdfs::path old = target.folder / trash_name(target.step, target.id);
  if (exists_at_all(target.final()))
    check_done(fs.rename(target.final(), old), target.final(), "be replaced (it is not a valid checkpoint)");
  check_done(fs.rename(target.temporary(), target.final()), target.final(), "be renamed to");
  if (const int error = fs.sync_folder(target.folder); error != 0) {
    fs.rename(target.final(), target.temporary());  // nobody knows what is on the disk: it was not saved
    check_done(error, target.folder, "be flushed to disk");
  }
  remove_tree(fs, old);  // what stays is left to the next start
  replace_latest(fs, target);
}

void make_folders(files::Fs& fs, const stdfs::path& folder, const std::string& name) {
  stdfs::path made = folder;
  for (const stdfs::path& part : stdfs::path(name).parent_path()) {
    made /= part;
    const int error = fs.make_folder(made);
    check_done(error == EEXIST ? 0 : error, made, "be made");
  }
}

void abandon(files::Fs& fs, const SaveTarget& target) noexcept { remove_folder(fs, target.temporary()); }

void remove_folder(files::Fs& fs, const stdfs::path& folder) noexcept {
  try {
    remove_tree(fs, folder);
  } catch (const std::exception&) {
  }
}

std::vector<FoundCheckpoint> checkpoints_in(const stdfs::path& folder) {
  std::vector<std::string> names;
  const int error = list_names(folder, names);
  require<StorageError>(error == 0 || error == ENOENT, folder.string(), ": cannot be listed: ", errno_text(error),
                        error == EACCES ? "\n  fix: make it readable for this user"
                                        : "\n  fix: check the disk or the network that the folder is on");
  std::vector<FoundCheckpoint> out;
  for (const std::string& name : names)
    if (const auto step = step_in_name(name)) out.push_back({*step, folder / name});
  std::ranges::sort(out, std::greater(), &FoundCheckpoint::step);
  return out;
}

std::string why_not_valid(const stdfs::path& checkpoint) {
  try {
    const Reader reader(checkpoint);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<stdfs::path> prune(files::Fs& fs, const stdfs::path& folder, std::int64_t keep, std::int64_t keep_every) {
  constexpr std::int64_t kLeast = 2;  // if the newest turns out to be damaged, there is another
  if (keep <= 0) return {};
  for (const stdfs::path& trash : unfinished_in(folder, /*only_trash=*/true)) remove_tree(fs, trash);
  std::vector<std::pair<stdfs::path, stdfs::path>> removed;  // and their new names
  std::int64_t valid = 0;
  for (const FoundCheckpoint& found : checkpoints_in(folder)) {
    std::string id;
    std::set<stdfs::path> folders;
    try {
      const Reader reader(found.path);
      id = reader.manifest().id;
      folders = folders_of(reader.manifest());
    } catch (const Error&) {
      continue;
    }
    if (++valid <= std::max(keep, kLeast) || (keep_every > 0 && found.step % keep_every == 0) || !is_id(id) ||
        !may_be_removed(found.path, "", folders))
      continue;
    const stdfs::path trash = folder / trash_name(found.step, id);
    check_done(fs.rename(found.path, trash), found.path, "be renamed for its removal");
    removed.emplace_back(found.path, trash);
  }
  if (removed.empty()) return {};
  // Before the first file is removed: after a crash, step-N must not come back with a part of its files.
  check_done(fs.sync_folder(folder), folder, "be flushed to disk");
  std::vector<stdfs::path> out;
  for (const auto& [path, trash] : removed) {
    check_done(remove_tree(fs, trash), trash, "be removed");
    out.push_back(path);
  }
  return out;
}

stdfs::path set_aside(files::Fs& fs, const stdfs::path& checkpoint) {
  stdfs::path aside = checkpoint.string() + ".damaged";
  for (int i = 2; exists_at_all(aside); ++i) aside = text(checkpoint.string(), ".damaged-", i);
  check_done(fs.rename(checkpoint, aside), checkpoint, text("be renamed to ", aside.filename().string()));
  check_done(fs.sync_folder(checkpoint.parent_path()), checkpoint.parent_path(), "be flushed to disk");
  return aside;
}

bool has_unfinished(const stdfs::path& folder) { return !unfinished_in(folder, /*only_trash=*/false).empty(); }

void remove_unfinished(files::Fs& fs, const stdfs::path& folder) {
  std::string failed;
  for (const stdfs::path& each : unfinished_in(folder, /*only_trash=*/false))
    if (const int error = remove_tree(fs, each); error != 0)
      failed += text(failed.empty() ? "" : "\n  ", each.string(), ": cannot be removed: ", errno_text(error));
  require<CheckpointError>(failed.empty(), failed, "\n  fix: remove it by hand; it is not used");
}

}  // namespace trireme::checkpoint
