#pragma once
// The folder that a data set is written to. Header only.
#include <filesystem>
#include <system_error>
#include <vector>

#include "trireme/base/file_output.hpp"

namespace trireme::data {

/// Makes the folder of a file, and takes it away again when nothing was put there.
class OutputFolder {
 public:
  explicit OutputFolder(const std::filesystem::path& file) {
    std::filesystem::path folder = file.parent_path();
    for (std::filesystem::path each = folder; !each.empty() && !std::filesystem::exists(each);
         each = each.parent_path())
      made_.push_back(each);
    if (!folder.empty()) make_folder(folder);
  }
  ~OutputFolder() {
    std::error_code not_empty;
    for (const std::filesystem::path& each : made_) std::filesystem::remove(each, not_empty);
  }
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  std::vector<std::filesystem::path> made_;  // innermost first
};

}  // namespace trireme::data
