#pragma once
// For tests: a temporary folder removed at the end of the scope, and reading of whole files.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <stdlib.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme {

/// A folder in memory, where fsync costs nothing, if this machine has one: for tests that make thousands of files.
inline std::filesystem::path memory_folder() {
  const std::filesystem::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK | X_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

class TempFolder {
 public:
  explicit TempFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "trireme-XXXXXX").string();
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
