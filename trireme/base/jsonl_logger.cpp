#include "trireme/base/jsonl_logger.hpp"

#include <algorithm>
#include <string>
#include <variant>

#include "trireme/base/error.hpp"
#include "trireme/base/json_text.hpp"

namespace trireme {

JsonlLogger::JsonlLogger(const std::filesystem::path& path) : file_(path) {
  // After a crash in the middle of a line: start the next record on a new line.
  if (!file_.ends_with('\n')) file_.append("\n");
}

void JsonlLogger::add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) {
  check_formats(entries);
  std::string line = "{\"step\":" + json_number(iteration_step);
  for (auto item = entries.begin(); item != entries.end(); ++item) {
    require<ConfigError>(item->tag != "step", file_.path().string(), ": a log item has the tag \"step\" (at step ",
                         iteration_step, "), which is the record's own\n  fix: rename the tag");
    const bool again =
        std::any_of(item + 1, entries.end(), [&](const LogItem& later) { return later.tag == item->tag; });
    if (again) continue;
    line.append(",").append(json_string(item->tag)).append(":");
    line.append(std::visit([](auto value) { return json_number(value); }, item->scalar_value));
  }
  line += "}\n";
  file_.append(line);
}

}  // namespace trireme
