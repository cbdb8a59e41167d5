// Runs a fuzz target on files and on simple mutations of each, without a fuzzer.   usage: PROGRAM FOLDER-OR-FILE...
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "trireme/base/philox.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const std::vector<std::string>& names) {
  std::vector<fs::path> files;
  for (const std::string& name : names) {
    if (!fs::is_directory(name)) {
      files.push_back(name);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(name)) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

int run(const std::string& bytes) {
  // Of exactly this size, so that an address sanitizer detects reads past the end.
  const std::vector<std::uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
  return 1;
}

/// 300 mutations of a few bytes each, the same in every run.
int run_damaged(const std::string& bytes) {
  const trireme::RandomStream dice(20, "fuzz replay");
  int count = 0;
  for (std::uint64_t i = 0; i < 300 && !bytes.empty(); ++i) {
    std::string damaged = bytes.substr(0, i % 3 == 0 ? dice.below(8 * i, bytes.size()) : bytes.size());
    for (std::uint64_t k = 1; k <= i % 4 && !damaged.empty(); ++k)
      damaged[dice.below(8 * i + k, damaged.size())] ^= static_cast<char>(1u << dice.below(8 * i + 4 + k, 8));
    count += run(damaged);
  }
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<fs::path> files = files_of({argv + 1, argv + argc});
  if (files.empty()) {
    std::cerr << "replay: no files (usage: " << argv[0] << " FOLDER-OR-FILE...)\n";
    return 1;
  }
  int count = run("");
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    count += run(bytes) + run_damaged(bytes);
  }
  std::cout << files.size() << " files, " << count << " inputs\n";
  return 0;
}
