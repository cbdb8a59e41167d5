#pragma once
// How long work over files talks to whoever started it.
#include <cstdint>
#include <functional>

namespace trireme::data {

struct DataProgress {
  std::uint64_t taken = 0, of = 0;  // bytes on disk, or tokens
  std::uint64_t read_bytes = 0;     // of text, uncompressed
  std::int64_t documents = 0, tokens = 0;
};

struct DataHooks {
  std::function<void(const DataProgress&)> progress = [](const DataProgress&) {};  // many times a second
  std::function<bool()> stopped = [] { return false; };  // true: everything is undone, and Interrupted thrown
};

}  // namespace trireme::data
