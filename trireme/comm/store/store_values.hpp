#pragma once
// The keys of a store, and who waits for them.
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace trireme {

/// Functions throw store_wire::BadClient for a request that libtorch's server would not accept.
class StoreValues {
 public:
  /// The connections whose last awaited key this was: they wait no longer.
  std::vector<std::uint64_t> set(const std::string& key, std::string value);

  /// The new value of `key`, or the present one if that is not `expected`. An absent key is expected as "".
  struct Compared {
    std::string value;
    bool swapped = false;
  };
  Compared compared(const std::string& key, const std::string& expected, const std::string& desired) const;
  /// The number in `key`, 0 if it is absent, plus `amount`.
  std::int64_t sum_of(const std::string& key, std::int64_t amount) const;
  /// The value of `key`, "" if it is absent, with `more` behind it.
  std::string appended(const std::string& key, const std::string& more) const;
  /// libtorch's clients wait for a key before they read it.
  const std::string& existing(const std::string& key) const;
  std::vector<std::string> missing_of(const std::vector<std::string>& keys) const;
  std::int64_t erase(const std::string& key) { return static_cast<std::int64_t>(values_.erase(key)); }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }

  /// A connection waits for all of these keys, which do not exist yet, and for no others.
  void wait(std::uint64_t connection, const std::vector<std::string>& missing);
  void stop_waiting(std::uint64_t connection);

 private:
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::set<std::uint64_t>> waiting_;  // connections by key
  std::unordered_map<std::uint64_t, std::set<std::string>> awaited_;  // keys by connection
};

}  // namespace trireme
