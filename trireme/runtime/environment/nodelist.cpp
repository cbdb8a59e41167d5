#include "trireme/runtime/environment/nodelist.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// A left-to-right parser; errors include the position.
class ListReader {
 public:
  ListReader(const char* what, std::string_view list) : what_(what), list_(list) {}

  bool done() const { return at_ == list_.size(); }
  char peek() const { return done() ? '\0' : list_[at_]; }

  bool take(char wanted) {
    if (done() || list_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail("expected '", wanted, "'", done() ? " before the end" : "");
  }
  std::string_view digits() {
    const std::size_t begin = at_;
    while (!done() && '0' <= list_[at_] && list_[at_] <= '9') ++at_;
    if (at_ == begin) fail("expected a number");
    return list_.substr(begin, at_ - begin);
  }
  std::string_view until_any_of(std::string_view stops) {
    const std::size_t begin = at_;
    at_ = std::min(list_.find_first_of(stops, at_), list_.size());
    return list_.substr(begin, at_ - begin);
  }
  std::int64_t number(std::string_view digits) {
    std::int64_t value = 0;
    if (digits.size() > 9) fail("a number of ", digits.size(), " digits is too long");
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  }
  template <class... Why>
  [[noreturn]] void fail(const Why&... why) const {
    throw ConfigError(text(what_, " \"", list_, "\": at character ", at_ + 1, ": ", why...));
  }

 private:
  const char* what_;
  std::string_view list_;
  std::size_t at_ = 0;
};

std::string padded(std::int64_t value, std::size_t width) {
  std::string digits = std::to_string(value);
  return digits.size() < width ? std::string(width - digits.size(), '0') + digits : digits;
}

/// Parses the contents of brackets: "10,20-22".
std::vector<std::string> read_bracket(ListReader& reader) {
  std::vector<std::string> words;
  do {
    const std::string_view low_digits = reader.digits();
    const std::int64_t low = reader.number(low_digits);
    const std::int64_t high = reader.take('-') ? reader.number(reader.digits()) : low;
    if (high < low) reader.fail("the range ", low_digits, "-", high, " runs backwards");
    if (high - low + static_cast<std::int64_t>(words.size()) >= kMaxHosts)
      reader.fail("more than ", kMaxHosts, " hosts");
    for (std::int64_t value = low; value <= high; ++value) words.push_back(padded(value, low_digits.size()));
  } while (reader.take(','));
  reader.expect(']');
  return words;
}

/// One entry of the list: "r[1-2]n[1-2]-ib".
std::vector<std::string> read_hosts(ListReader& reader) {
  std::vector<std::string> hosts{std::string(reader.until_any_of(",[] \t"))};
  while (reader.take('[')) {
    const std::vector<std::string> words = read_bracket(reader);
    if (hosts.size() * words.size() > kMaxHosts) reader.fail("more than ", kMaxHosts, " hosts");
    if (hosts.front().size() > 255) break;  // rejected below, before it is multiplied
    const std::string_view after = reader.until_any_of(",[] \t");
    std::vector<std::string> longer;
    longer.reserve(hosts.size() * words.size());
    for (const std::string& host : hosts)
      for (const std::string& word : words) longer.push_back(host + word + std::string(after));
    hosts = std::move(longer);
  }
  if (hosts.front().empty()) reader.fail("expected a host name");
  if (hosts.front().size() > 255) reader.fail("a host name has at most 255 characters");
  return hosts;
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view list) {
  ListReader reader("nodelist", list);
  std::vector<std::string> all;
  do {
    std::vector<std::string> hosts = read_hosts(reader);
    if (all.size() + hosts.size() > kMaxHosts) reader.fail("more than ", kMaxHosts, " hosts");
    std::ranges::move(hosts, std::back_inserter(all));
  } while (reader.take(','));
  if (!reader.done()) reader.fail("did not expect '", reader.peek(), "'");
  return all;
}

std::vector<int> expand_tasks_per_node(std::string_view list) {
  ListReader reader("tasks per node", list);
  std::vector<int> all;
  do {
    const auto tasks = static_cast<int>(reader.number(reader.digits()));
    if (tasks < 1) reader.fail("a host has at least one task");
    std::int64_t hosts = 1;
    if (reader.take('(')) {
      reader.expect('x');
      hosts = reader.number(reader.digits());
      reader.expect(')');
    }
    if (hosts < 1) reader.fail("repeated ", hosts, " times");
    if (static_cast<std::int64_t>(all.size()) + hosts > kMaxHosts) reader.fail("more than ", kMaxHosts, " hosts");
    all.insert(all.end(), static_cast<std::size_t>(hosts), tasks);
  } while (reader.take(','));
  if (!reader.done()) reader.fail("did not expect '", reader.peek(), "'");
  return all;
}

}  // namespace trireme
