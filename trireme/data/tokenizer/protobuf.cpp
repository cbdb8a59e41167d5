#include "trireme/data/tokenizer/protobuf.hpp"

#include <bit>
#include <cmath>

#include "trireme/base/error.hpp"

namespace trireme::data {

void ProtobufReader::fail(std::string_view what) const {
  throw DataError(text(place_, ": byte ", begin_ + field_at_, ", field ", field_, ": ", what,
                       "\n  fix: the file is damaged or not of this format, fetch it again"));
}

std::uint64_t ProtobufReader::varint() {
  std::uint64_t out = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == message_.size()) fail("ends in the middle of a number");
    const auto byte = static_cast<unsigned char>(message_[at_++]);
    out |= std::uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return out;
  }
  fail("a number of more than 10 bytes");
}

std::uint64_t ProtobufReader::fixed(std::size_t bytes) {
  if (message_.size() - at_ < bytes) fail("ends in the middle of a number");
  std::uint64_t out = 0;
  for (std::size_t i = bytes; i-- > 0;) out = out << 8 | static_cast<unsigned char>(message_[at_ + i]);
  at_ += bytes;
  return out;
}

bool ProtobufReader::next() {
  if (at_ == message_.size()) return false;
  field_at_ = at_;
  field_ = 0;
  const std::uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) fail(text("there is no field ", key >> 3));
  field_ = static_cast<std::uint32_t>(key >> 3);
  wire_ = static_cast<Wire>(key & 7);
  switch (wire_) {
    case Wire::varint: value_ = varint(); return true;
    case Wire::fixed64: value_ = fixed(8); return true;
    case Wire::fixed32: value_ = fixed(4); return true;
    case Wire::bytes: {
      const std::uint64_t size = varint();
      if (size > message_.size() - at_) fail(text(size, " bytes, where only ", message_.size() - at_, " are left"));
      value_at_ = at_;
      bytes_ = message_.substr(at_, size);
      at_ += size;
      return true;
    }
  }
  fail(text("there is no type ", key & 7));
}

void ProtobufReader::expect(Wire wire, std::string_view what) const {
  if (wire_ != wire) fail(text("is not ", what));
}

bool ProtobufReader::flag() const {
  expect(Wire::varint, "true or false");
  return value_ != 0;
}

std::int64_t ProtobufReader::integer() const {
  expect(Wire::varint, "an integer");
  return static_cast<std::int64_t>(value_);
}

float ProtobufReader::number() const {
  expect(Wire::fixed32, "a number");
  const auto out = std::bit_cast<float>(static_cast<std::uint32_t>(value_));
  if (!std::isfinite(out)) fail("is not a finite number");
  return out;
}

std::string_view ProtobufReader::bytes() const {
  expect(Wire::bytes, "a text or message");
  return bytes_;
}

}  // namespace trireme::data
