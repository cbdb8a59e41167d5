#pragma once
// Reads the fields of a protobuf message, checked: any bytes are either read or refused.
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data {

class ProtobufReader {
 public:
  /// `place` is used in messages, with the number of the byte in the file: `message` begins at byte `begin`.
  explicit ProtobufReader(std::string_view message, std::string place, std::size_t begin = 0)
      : message_(message), place_(std::move(place)), begin_(begin) {}

  /// Goes to the next field; false at the end. DataError if there is no whole field.
  bool next();

  std::uint32_t field() const { return field_; }
  // The value of the current field. DataError if it is of another type.
  bool flag() const;
  std::int64_t integer() const;
  float number() const;  // DataError if it is not finite
  std::string_view bytes() const;
  ProtobufReader message() const { return ProtobufReader(bytes(), place_, begin_ + value_at_); }

  /// DataError about the current field.
  [[noreturn]] void fail(std::string_view what) const;

 private:
  enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  std::uint64_t varint();
  std::uint64_t fixed(std::size_t bytes);
  void expect(Wire wire, std::string_view what) const;

  std::string_view message_;
  std::string place_;
  std::size_t begin_, at_ = 0, field_at_ = 0, value_at_ = 0;
  std::uint32_t field_ = 0;
  Wire wire_ = Wire::varint;
  std::uint64_t value_ = 0;
  std::string_view bytes_;
};

}  // namespace trireme::data
