#include "trireme/metrics/best_effort.hpp"

#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::metrics {

std::optional<std::string> BestEffort::attempt(const std::function<void()>& write) {
  try {
    write();
  } catch (const DataError& e) {
    ++lost_;
    if (++lost_in_a_row_ > 1) return std::nullopt;
    const std::string why = e.what();
    return text(what_, ": a record is lost, training continues: ", why.substr(0, why.find('\n')));
  }
  const std::int64_t lost = std::exchange(lost_in_a_row_, 0);
  if (lost == 0) return std::nullopt;
  return text(what_, " is written again; ", lost, lost == 1 ? " record is" : " records are", " missing");
}

}  // namespace trireme::metrics
