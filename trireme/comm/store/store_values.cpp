#include "trireme/comm/store/store_values.hpp"

#include <charconv>
#include <system_error>
#include <utility>

#include "trireme/comm/store/store_request.hpp"

namespace trireme {

using store_wire::BadClient;

std::vector<std::uint64_t> StoreValues::set(const std::string& key, std::string value) {
  values_[key] = std::move(value);
  std::vector<std::uint64_t> ready;
  const auto found = waiting_.extract(key);
  if (found.empty()) return ready;
  for (const std::uint64_t connection : found.mapped()) {
    std::set<std::string>& awaited = awaited_.at(connection);
    awaited.erase(key);
    if (!awaited.empty()) continue;
    awaited_.erase(connection);
    ready.push_back(connection);
  }
  return ready;
}

StoreValues::Compared StoreValues::compared(const std::string& key, const std::string& expected,
                                            const std::string& desired) const {
  const auto at = values_.find(key);
  if (at == values_.end()) return expected.empty() ? Compared{desired, true} : Compared{expected, false};
  return at->second == expected ? Compared{desired, true} : Compared{at->second, false};
}

std::int64_t StoreValues::sum_of(const std::string& key, std::int64_t amount) const {
  std::int64_t sum = 0;
  if (const auto at = values_.find(key); at != values_.end()) {
    const std::string& digits = at->second;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sum);
    if (error != std::errc{} || end != digits.data() + digits.size()) throw BadClient();
  }
  if (__builtin_add_overflow(sum, amount, &sum)) throw BadClient();
  return sum;
}

std::string StoreValues::appended(const std::string& key, const std::string& more) const {
  const auto at = values_.find(key);
  std::string value = at == values_.end() ? "" : at->second;
  if (value.size() + more.size() > store_wire::kMaxValueBytes) throw BadClient();
  return value + more;
}

const std::string& StoreValues::existing(const std::string& key) const {
  const auto at = values_.find(key);
  if (at == values_.end()) throw BadClient();
  return at->second;
}

std::vector<std::string> StoreValues::missing_of(const std::vector<std::string>& keys) const {
  std::vector<std::string> missing;
  for (const std::string& key : keys)
    if (!values_.contains(key)) missing.push_back(key);
  return missing;
}

void StoreValues::wait(std::uint64_t connection, const std::vector<std::string>& missing) {
  stop_waiting(connection);
  for (const std::string& key : missing) waiting_[key].insert(connection);
  awaited_[connection].insert(missing.begin(), missing.end());
}

void StoreValues::stop_waiting(std::uint64_t connection) {
  const auto awaited = awaited_.extract(connection);
  if (awaited.empty()) return;
  for (const std::string& key : awaited.mapped())
    if (const auto at = waiting_.find(key);
        at != waiting_.end() && at->second.erase(connection) > 0 && at->second.empty())
      waiting_.erase(at);
}

}  // namespace trireme
