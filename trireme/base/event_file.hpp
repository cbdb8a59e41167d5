#pragma once
// TensorBoard's event file: protobuf messages in TFRecord frames, both written by hand.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file_output.hpp"
#include "trireme/base/wall_clock.hpp"

namespace trireme {

/// `payload` in its frame: length, masked CRC-32C of the length, payload, masked CRC-32C of the payload; little-endian.
std::string tfrecord(std::string_view payload);

struct EventScalar {
  std::string tag;
  float value;
};

/// A new file `events.out.tfevents.<seconds>.<host>.<pid>.<n>`, n = 0 unless that name is taken.
class EventFile {
 public:
  /// Makes `folder` if need be. ConfigError if it or the file cannot be made.
  EventFile(const std::filesystem::path& folder, WallClock clock);

  /// One event with all the scalars, whole on its way to the disk when this returns. A tag may come twice.
  void add_scalars(std::int64_t step, const std::vector<EventScalar>& scalars);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  double wall_time() const;

  WallClock clock_;
  AppendFile file_;
};

}  // namespace trireme
