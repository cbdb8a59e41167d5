#pragma once
// ranks.jsonl of a run: what each rank did in a step, one JSON object per line.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/file_output.hpp"

namespace trireme::metrics {

/// Lists with one value per rank; an empty one was not measured.
struct RanksRecord {
  std::int64_t step = 0;
  std::vector<double> own_work_s{};  // RankTime::own_work
  std::vector<double> bubbles{};     // idle share of the time from its first to its last action
  std::vector<double> peak_bytes{};
};

/// {"step":10,"own_work_s":[0.0312,0.0307],"bubble":[0.21,0.18],"peak_bytes":[1024,2048]}: times and shares with four
/// significant digits.
std::string json_record(const RanksRecord& record);

/// Keeps the file small with many ranks: every step up to 16 ranks, else every (ranks / 16)th.
bool is_kept(std::int64_t step, std::int64_t ranks);

/// Appends to an existing file.
class RanksFile {
 public:
  explicit RanksFile(const std::filesystem::path& path) : file_(path) {}
  void append(const RanksRecord& record);

 private:
  AppendFile file_;
};

}  // namespace trireme::metrics
