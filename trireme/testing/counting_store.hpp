#pragma once
// A store in memory that counts the keys that are read from it. For tests and benchmarks.
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace trireme {

class CountingStore final : public c10d::HashStore {
 public:
  using Keys = std::vector<std::string>;

  std::int64_t keys_read() const { return read_; }

  std::vector<std::uint8_t> get(const std::string& key) override {
    ++read_;
    return c10d::HashStore::get(key);
  }
  std::vector<std::vector<std::uint8_t>> multiGet(const Keys& keys) override {
    read_ += static_cast<std::int64_t>(keys.size());
    return c10d::HashStore::multiGet(keys);
  }
  c10::intrusive_ptr<c10d::Store> clone() override { return c10::intrusive_ptr<CountingStore>::reclaim_copy(this); }

 private:
  std::atomic<std::int64_t> read_ = 0;
};

}  // namespace trireme
