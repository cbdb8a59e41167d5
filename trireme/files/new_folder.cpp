#include "trireme/files/new_folder.hpp"

#include <cerrno>
#include <system_error>

#include <sys/stat.h>

#include "trireme/base/error.hpp"
#include "trireme/base/temporary_name.hpp"
#include "trireme/files/staged_files.hpp"

namespace trireme::files {

namespace fs = std::filesystem;

NewFolder::NewFolder(const fs::path& folder) : shown_(folder.string()) {
  std::error_code failed;
  require<CheckpointError>(!folder.empty(), "a folder without a name cannot be written");
  folder_ = fs::weakly_canonical(fs::absolute(folder, failed), failed);
  if (!folder_.has_filename()) folder_ = folder_.parent_path();
  const fs::file_status status = fs::status(folder_, failed);
  require<CheckpointError>(!fs::exists(status) || (fs::is_directory(status) && fs::is_empty(folder_, failed)), shown_,
                           ": already exists and is not empty: nothing is overwritten",
                           "\n  fix: write to another folder, or remove this one");
  fs::create_directories(folder_.parent_path(), failed);
  remove_leftovers(folder_);
  for (int number = 0; temporary_.empty(); ++number) {
    const fs::path candidate = temporary_name(folder_, number);
    if (::mkdir(candidate.c_str(), 0777) == 0) temporary_ = candidate;
    require<CheckpointError>(!temporary_.empty() || errno == EEXIST, candidate.string(),
                             ": cannot be made: ", errno_text(errno));
  }
}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void NewFolder::publish() {
  settle_folder(temporary_);
  require<CheckpointError>(::rename(temporary_.c_str(), folder_.c_str()) == 0, shown_, ": ", temporary_.string(),
                           " cannot be renamed to it: ", errno_text(errno));
  temporary_.clear();
  settle_folder(folder_.parent_path());
}

}  // namespace trireme::files
