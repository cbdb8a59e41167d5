#pragma once
// For tests: a temporary folder removed at the end of the scope, and reading of whole files.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <stdlib.h>

#include "trireme/base/error.hpp"

namespace trireme {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "mkdtemp failed for ", name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string file_contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  require(in.is_open(), "cannot open ", path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace trireme
