#pragma once
// Writer for TensorBoard event files: protobuf messages in TFRecord frames, both encoded here without a library.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file_output.hpp"
#include "trireme/base/wall_clock.hpp"

namespace trireme::metrics {

/// A TFRecord frame: length, masked CRC-32C of the length, payload, masked CRC-32C of the payload; little-endian.
std::string tfrecord(std::string_view payload);

struct EventScalar {
  std::string tag;
  float value;
};

/// Creates a new file `events.out.tfevents.<seconds>.<host>.<pid>.<n>`, n = 0 unless that name is taken.
class EventFile {
 public:
  /// Creates `folder` if necessary. Throws ConfigError if the folder or the file cannot be created.
  EventFile(const std::filesystem::path& folder, WallClock clock);

  /// Writes one event with all the scalars, in one unbuffered write. A tag may occur twice.
  void add_scalars(std::int64_t step, const std::vector<EventScalar>& scalars);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  double wall_time() const;

  WallClock clock_;
  AppendFile file_;
};

}  // namespace trireme::metrics
