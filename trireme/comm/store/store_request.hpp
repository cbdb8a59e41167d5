#pragma once
// Reads requests of the store from bytes that may not have arrived completely.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/store/store_wire.hpp"

namespace trireme::store_wire {

/// Thrown for a client that breaks the protocol or its limits; the server closes its connection.
struct BadClient {};

/// Every function returns false if the bytes end before what it reads.
class RequestReader {
 public:
  explicit RequestReader(std::string_view bytes) : bytes_(bytes) {}

  std::size_t consumed() const { return at_; }

  template <class Number>
  bool number(Number& value) {
    if (bytes_.size() - at_ < sizeof value) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return true;
  }
  bool raw(std::string_view& some, std::size_t size) {
    if (bytes_.size() - at_ < size) return false;
    some = bytes_.substr(at_, size);
    at_ += size;
    return true;
  }
  bool key(std::string& key) { return sized(key, kMaxKeyBytes); }
  bool value(std::string& value) { return sized(value, kMaxValueBytes); }
  bool keys(std::vector<std::string>& all) {
    std::uint64_t count = 0;
    if (!number(count)) return false;
    if (count > kMaxKeys) throw BadClient();
    for (std::string one; all.size() < count; all.push_back(one))
      if (!key(one)) return false;
    return true;
  }

 private:
  bool sized(std::string& word, std::uint64_t limit) {
    std::uint64_t size = 0;
    std::string_view some;
    if (!number(size)) return false;
    if (size > limit) throw BadClient();
    if (!raw(some, size)) return false;
    word = some;
    return true;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace trireme::store_wire
