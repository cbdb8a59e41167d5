#include "trireme/runtime/rank/rank_logs.hpp"

#include <algorithm>
#include <system_error>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/runtime/launcher/launch.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// The first of ranks, ranks-2, ... that is not there, made at once: two jobs must not share one. "" with the reason.
std::string new_log_folder(const fs::path& parent, std::error_code& why_not) {
  for (int i = 1;; ++i) {
    const fs::path folder = parent / (i == 1 ? "ranks" : text("ranks-", i));
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(folder, ignored))) continue;
    if (fs::create_directory(folder, why_not)) return folder.string();
    if (why_not) return "";
  }
}

bool is_silent(const fs::path& log) {
  std::error_code error;
  const auto size = fs::file_size(log, error);
  return error || size == 0;
}

}  // namespace

RankLogs::RankLogs(const fs::path& given, int first, int last, const fs::path& parent)
    : first_(std::max(first, 1)), last_(last) {
  const std::string whose = first_ == last_ ? text("rank ", first_) : text("ranks ", first_, " to ", last_);
  if (!given.empty()) {
    make_folder(given);
    folder_ = given.string();
  } else {
    std::error_code why_not;
    folder_ = new_log_folder(parent, why_not);
    is_made_here_ = !folder_.empty();
    if (!is_made_here_) {
      note_ = text("note: the output of ", whose, " is not kept: no folder can be made in ", parent.string(), ": ",
                   why_not.message(), "; RunOptions::log_folder names another one");
      return;
    }
  }
  note_ = text("note: the output of ", whose, " is in ", folder_);
}

void RankLogs::finish(int code) const {
  if (!is_made_here_ || code != 0) return;
  for (int rank = first_; rank <= last_; ++rank)
    if (!is_silent(fs::path(folder_) / launcher::log_name(rank))) return;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace trireme
