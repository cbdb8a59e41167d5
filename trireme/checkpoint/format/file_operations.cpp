#include "trireme/checkpoint/format/file_operations.hpp"

#include <algorithm>
#include <cerrno>
#include <span>

#include <sys/stat.h>

#include "trireme/base/error.hpp"
#include "trireme/base/process_limits.hpp"

namespace trireme::checkpoint {

namespace stdfs = std::filesystem;

namespace {

std::string fix_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return "\n  fix: free space on that disk, or keep fewer checkpoints; earlier checkpoints are intact";
    case EACCES:
    case EPERM:
    case EROFS: return "\n  fix: save to a folder that this user may write to";
    case EFBIG: return text("\n  fix: ", write_error_fix(error));
    default: return "\n  fix: check the disk or the network that the folder is on; earlier checkpoints are intact";
  }
}

}  // namespace

void check_done(int error, const stdfs::path& path, const std::string& operation) {
  require<CheckpointError>(error == 0, path.string(), ": cannot ", operation, ": ", write_error_text(error),
                           fix_for(error));
}

void write_new_file(files::Fs& fs, const stdfs::path& file, std::string_view contents) {
  int fd = -1;
  check_done(fs.create(file, /*direct=*/false, fd), file, "be created");
  const int written = fs.write(fd, 0, std::as_bytes(std::span(contents)));
  const int synced = written == 0 ? fs.sync(fd) : 0;
  const int closed = fs.close(fd);
  check_done(written, file, text("be written (", contents.size(), " bytes)"));
  check_done(synced, file, "be flushed to disk");
  check_done(closed, file, "be closed");
}

bool exists_at_all(const stdfs::path& path) {
  struct stat facts{};
  return ::lstat(path.c_str(), &facts) == 0;
}

bool is_real_folder(const stdfs::path& path) {
  struct stat facts{};
  return ::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

int list_names(const stdfs::path& folder, std::vector<std::string>& names) {
  std::error_code failed;
  for (auto entry = stdfs::directory_iterator(folder, failed); !failed && entry != stdfs::directory_iterator();
       entry.increment(failed))
    names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  return failed.value();
}

}  // namespace trireme::checkpoint
