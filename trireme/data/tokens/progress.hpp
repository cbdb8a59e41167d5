#pragma once
// Progress and cancellation callbacks for long operations on files.
#include <cstdint>
#include <functional>

namespace trireme::data {

struct DataProgress {
  std::uint64_t taken = 0, of = 0;  // processed and total bytes on disk, or tokens
  std::uint64_t read_bytes = 0;     // of text, uncompressed
  std::int64_t documents = 0, tokens = 0;
};

struct DataHooks {
  std::function<void(const DataProgress&)> progress = [](const DataProgress&) {};  // called many times per second
  std::function<bool()> stopped = [] { return false; };  // true: output is rolled back and Interrupted is thrown
};

}  // namespace trireme::data
