#pragma once
// The output folder of a data set. Header only.
#include <filesystem>
#include <system_error>
#include <vector>

#include "trireme/base/file_output.hpp"

namespace trireme::data {

/// Creates the folder of a file, and removes it again if it stays empty.
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
