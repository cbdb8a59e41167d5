#include "trireme/metrics/events_file.hpp"

#include <chrono>
#include <cmath>
#include <iomanip>
#include <type_traits>
#include <variant>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/json_text.hpp"

namespace trireme::metrics {
namespace {

std::string field_json(const LogField::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>)
          return v ? "true" : "false";
        else if constexpr (std::is_same_v<T, std::string_view>)
          return json_string(v);
        else
          return json_number(v);
      },
      value);
}

}  // namespace

std::string event_json(double time, std::string_view event, std::initializer_list<LogField> fields) {
  std::string line = text("{\"time\":", std::fixed, std::setprecision(3), time, ",\"event\":", json_string(event));
  for (const auto& [key, value] : fields)
    line.append(",").append(json_string(key)).append(":").append(field_json(value));
  return line + "}";
}

bool add_event(const std::filesystem::path& run, std::string_view event, std::initializer_list<LogField> fields) {
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  try {
    // Opened each time: after a rank has ended, its launcher writes to the same file.
    AppendFile file(run / kEventsName);
    file.append((file.ends_with('\n') ? "" : "\n") + event_json(now, event, fields) + "\n");
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace trireme::metrics
