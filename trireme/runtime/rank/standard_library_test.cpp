#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <link.h>

namespace {

/// The libraries this program needs, in the loader's search order.
std::vector<std::string> needed_libraries() {
  const char* strings = nullptr;
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_STRTAB) strings = reinterpret_cast<const char*>(entry->d_un.d_ptr);
  std::vector<std::string> names;
  for (const ElfW(Dyn)* entry = _DYNAMIC; entry->d_tag != DT_NULL; ++entry)
    if (entry->d_tag == DT_NEEDED) names.emplace_back(strings + entry->d_un.d_val);
  return names;
}

// libtorch exports its own std::filesystem; a program that binds to it crashes where the two differ.
TEST(StandardLibrary, ComesBeforeTheCopyInsideLibtorch) {
  bool standard = false;
  for (const std::string& name : needed_libraries()) {
    standard = standard || name.starts_with("libstdc++.so");
    if (name.starts_with("libtorch") && !standard) {
      // If libstdc++.so is not in the list it is linked statically, and the program's own symbols come first.
      for (const std::string& other : needed_libraries())
        EXPECT_FALSE(other.starts_with("libstdc++.so")) << other << " comes after " << name;
    }
  }
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "standard_library_test";
  std::filesystem::create_directories(folder / "a" / "b");
  EXPECT_EQ(std::filesystem::remove_all(folder), 3u);
}

}  // namespace
