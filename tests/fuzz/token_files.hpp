#pragma once
// Shared by the fuzz targets of token files: a folder in memory, and the invariants of any file that opens.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/open_tokens.hpp"

namespace trireme {

/// One per process, in a memory file system if there is one: a target runs thousands of times per second.
class FuzzFolder {
 public:
  FuzzFolder() {
    const std::filesystem::path memory = "/dev/shm";
    path_ = (std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
            text("trireme-fuzz-", ::getpid());
    std::filesystem::create_directories(path_);
  }
  ~FuzzFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path write(const std::string& name, std::span<const std::uint8_t> bytes) const {
    std::ofstream out(path_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    require(out.good(), "cannot write ", (path_ / name).string());
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

/// Removes and returns the first `count` of `bytes`, or all if there are fewer.
inline std::span<const std::uint8_t> taken(std::span<const std::uint8_t>& bytes, std::size_t count) {
  const auto front = bytes.first(std::min(count, bytes.size()));
  bytes = bytes.subspan(front.size());
  return front;
}

inline std::size_t taken_number(std::span<const std::uint8_t>& bytes, std::size_t width) {
  std::size_t number = 0;
  for (const std::uint8_t byte : taken(bytes, width)) number = number << 8 | byte;
  return number;
}

/// Opens and reads everything. Any exception other than DataError, and any violated invariant of TokenSource, aborts
/// the process.
inline void open_and_read(const std::filesystem::path& path, const data::OpenTokensOptions& options = {}) try {
  const auto source = data::open_tokens(path, options);
  const std::int64_t size = source->num_tokens();
  require(size > 0, "an empty data set opens");
  const std::vector<std::int64_t> ends = source->document_ends(0, size);
  require(!ends.empty() && ends.back() == size && ends.front() > 0, "the last document does not end with the tokens");
  require(std::adjacent_find(ends.begin(), ends.end(), std::greater_equal()) == ends.end(), "ends do not ascend");
  require(source->num_documents() >= static_cast<std::int64_t>(ends.size()), "fewer documents than ends");
  require(source->place(size - 1).document < source->num_documents(), "a token behind the last document");
  const std::int64_t half = size / 2;
  std::vector<std::int64_t> halves = source->document_ends(0, half);
  for (const std::int64_t end : source->document_ends(half, size - half)) halves.push_back(end);
  require(halves == ends, "two halves are not the whole");
  std::vector<std::uint32_t> ids(static_cast<std::size_t>(size));
  source->read(0, ids);
  std::vector<std::uint8_t> mask(ids.size());
  source->read_loss_mask(0, mask);
} catch (const DataError& error) {
  require(std::string_view(error.what()).find("\n  fix: ") != std::string_view::npos, "no fix in: ", error.what());
}

}  // namespace trireme
