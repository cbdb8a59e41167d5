#include "trireme/metrics/ranks_file.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/metrics/log_item.hpp"

namespace trireme::metrics {
namespace {

void append_list(std::string& line, const char* key, const std::vector<double>& values, bool whole) {
  if (values.empty()) return;
  line.append(",\"").append(key).append("\":[");
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i > 0) line += ',';
    if (!std::isfinite(values[i]))
      line += "null";
    else
      line += whole ? json_number(std::llround(values[i])) : format_scalar({"", values[i], ".4g"});
  }
  line += ']';
}

}  // namespace

std::string json_record(const RanksRecord& record) {
  std::string line = "{\"step\":" + json_number(record.step);
  append_list(line, "own_work_s", record.own_work_s, false);
  append_list(line, "bubble", record.bubbles, false);
  append_list(line, "peak_bytes", record.peak_bytes, true);
  return line + "}";
}

bool is_kept(std::int64_t step, std::int64_t ranks) {
  constexpr std::int64_t kEveryStep = 16;
  const std::int64_t every = (ranks + kEveryStep - 1) / kEveryStep;
  return step % every == 0;
}

void RanksFile::append(const RanksRecord& record) {
  file_.append((file_.ends_with('\n') ? "" : "\n") + json_record(record) + "\n");
}

}  // namespace trireme::metrics
