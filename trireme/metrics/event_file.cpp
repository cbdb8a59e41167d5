#include "trireme/metrics/event_file.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <utility>

#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/metrics/crc32c.hpp"

namespace trireme::metrics {
namespace {

template <class Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (unsigned shift = 0; shift < 8 * sizeof(Unsigned); shift += 8) out += static_cast<char>(value >> shift & 0xFF);
}

/// TFRecord's mask: a checksum over data that contains checksums stays reliable.
std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xA282EAD8;
}

/// The protobuf wire types that an event needs. Each `field` is a field number of event.proto or summary.proto.
class Message {
 public:
  Message& number(unsigned field, std::int64_t value) {
    varint(field << 3 | 0);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& number(unsigned field, double value) {
    varint(field << 3 | 1);
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
    return *this;
  }
  Message& number(unsigned field, float value) {
    varint(field << 3 | 5);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
    return *this;
  }
  Message& bytes(unsigned field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    bytes_.append(value);
    return *this;
  }

  operator std::string_view() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

std::filesystem::path new_path(const std::filesystem::path& folder, std::chrono::system_clock::time_point now) {
  make_folder(folder);
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
  const std::string stem = text("events.out.tfevents.", seconds, ".", host_name(), ".", ::getpid(), ".");
  // The name contains our pid: only this process could take it concurrently, by opening two files at once.
  for (int n = 0;; ++n) {
    std::filesystem::path path = folder / (stem + std::to_string(n));
    if (!std::filesystem::exists(path)) return path;
  }
}

}  // namespace

std::string tfrecord(std::string_view payload) {
  std::string out;
  append_little_endian(out, std::uint64_t{payload.size()});
  append_little_endian(out, masked_crc(out));
  out.append(payload);
  append_little_endian(out, masked_crc(payload));
  return out;
}

EventFile::EventFile(const std::filesystem::path& folder, WallClock clock)
    : clock_(std::move(clock)), file_(new_path(folder, clock_())) {
  file_.append(tfrecord(Message().number(1, wall_time()).bytes(3, "brain.Event:2")));
}

void EventFile::add_scalars(std::int64_t step, const std::vector<EventScalar>& scalars) {
  Message summary;
  for (const auto& [tag, value] : scalars) {
    // Readers reject the whole event if one string is not UTF-8.
    summary.bytes(1, Message().bytes(1, valid_utf8(tag)).number(2, value));
  }
  file_.append(tfrecord(Message().number(1, wall_time()).number(2, step).bytes(5, summary)));
}

double EventFile::wall_time() const {
  // Via microseconds, which a double represents exactly; nanoseconds would be rounded twice.
  const auto time = std::chrono::floor<std::chrono::microseconds>(clock_().time_since_epoch());
  return static_cast<double>(time.count()) / 1e6;
}

}  // namespace trireme::metrics
