#include "trireme/metrics/metrics_file.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <optional>
#include <utility>
#include <variant>

#include "trireme/base/error.hpp"
#include "trireme/base/json_text.hpp"

namespace trireme::metrics {
namespace {

struct Entry {
  const char* key;
  std::variant<double, std::int64_t, bool> value;
  const char* format = nullptr;  // of LogItem
  bool exact = false;            // JSON has a second key with the exact bits
};

/// All keys except the step, in output order.
std::vector<Entry> entries(const StepRecord& record) {
  std::vector<Entry> list;
  const auto add = [&](const char* key, const std::optional<double>& value, const char* format = nullptr) {
    if (value) list.push_back({key, *value, format});
  };
  list.push_back({.key = "loss", .value = record.loss, .exact = true});
  list.push_back({.key = "grad_norm", .value = record.grad_norm, .format = ".4g", .exact = true});
  add("aux_loss", record.aux_loss, ".4g");
  add("lr", record.lr, ".4g");
  list.push_back({.key = "tokens", .value = record.tokens});
  add("tokens_per_sec", record.tokens_per_sec, ".0f");
  add("tokens_per_sec_per_gpu", record.tokens_per_sec_per_rank, ".0f");
  add("step_time_s", record.step_time_s, ".4g");
  add("train_time_s", record.train_time_s, ".4g");
  add("data_time_frac", record.data_time_frac, ".3g");
  add("forward_time_frac", record.forward_time_frac, ".3g");
  add("backward_time_frac", record.backward_time_frac, ".3g");
  add("comm_exposed_frac", record.comm_exposed_frac, ".3g");
  add("bubble_time_frac", record.bubble_time_frac, ".3g");
  add("optimizer_time_frac", record.optimizer_time_frac, ".3g");
  add("other_time_frac", record.other_time_frac, ".3g");
  add("bubble_frac", record.bubble_frac, ".3g");
  add("bubble_ideal_frac", record.bubble_ideal_frac, ".3g");
  if (record.slowest_rank) list.push_back({.key = "slowest_rank", .value = std::int64_t{*record.slowest_rank}});
  add("own_work_max_s", record.own_work_max_s, ".4g");
  add("own_work_min_s", record.own_work_min_s, ".4g");
  add("mfu", record.mfu, ".3g");
  add("hfu", record.hfu, ".3g");
  add("tflops_per_gpu", record.tflops_per_rank, ".4g");
  add("hardware_tflops_per_gpu", record.hardware_tflops_per_rank, ".4g");
  add("mem_peak_gib", record.mem_peak_gib, ".4g");
  add("mem_start_gib", record.mem_start_gib, ".4g");
  add("loss_scale", record.loss_scale);
  list.push_back({.key = "skipped", .value = record.skipped});
  add("loss_z", record.loss_z, ".2f");
  add("grad_norm_z", record.grad_norm_z, ".2f");
  add("val/loss", record.val_loss);
  add("checkpoint_blocked_s", record.checkpoint_s, ".3g");
  return list;
}

std::string json_value(bool value) { return value ? "true" : "false"; }
std::string json_value(std::int64_t value) { return json_number(value); }
std::string json_value(double value) { return json_number_or_null(value); }

}  // namespace

std::string hex_float(double value) {
  if (std::isnan(value)) return "nan";  // the sign of a NaN is meaningless, and differs between machines
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  // Not std::to_chars: versions of the C++ library differ for subnormal numbers.
  std::array<char, 32> buffer;  // the longest is -0x1.fffffffffffffp+1023
  std::snprintf(buffer.data(), buffer.size(), "%a", value);
  return buffer.data();
}

std::string json_number_or_null(double value) { return std::isfinite(value) ? json_number(value) : "null"; }

std::string json_record(const StepRecord& record) {
  std::string line = "{\"step\":" + json_number(record.step);
  if (record.time > 0) line += text(",\"time\":", std::fixed, std::setprecision(3), record.time);
  for (const Entry& entry : entries(record)) {
    const std::string value = std::visit([](auto v) { return json_value(v); }, entry.value);
    line.append(",\"").append(entry.key).append("\":").append(value);
    if (entry.exact) {
      const std::string bits = hex_float(std::get<double>(entry.value));
      line.append(",\"").append(entry.key).append("_hex\":\"").append(bits).append("\"");
    }
  }
  return line + "}";
}

std::vector<LogItem> log_items(const StepRecord& record) {
  std::vector<LogItem> items;
  for (const Entry& entry : entries(record)) {
    LogItem item{entry.key, 0.0};
    if (entry.format != nullptr) item.log_format = entry.format;
    if (const auto* number = std::get_if<double>(&entry.value)) {
      item.scalar_value = *number;
    } else if (const auto* count = std::get_if<std::int64_t>(&entry.value)) {
      item.scalar_value = *count;
    } else {
      item.scalar_value = std::int64_t{std::get<bool>(entry.value)};
    }
    items.push_back(std::move(item));
  }
  return items;
}

KeptRecords drop_records_after(const std::filesystem::path& path, std::int64_t step) {
  constexpr std::string_view kBegin = "{\"step\":";
  std::error_code failed;
  require<DataError>(std::filesystem::is_regular_file(path, failed) || !std::filesystem::exists(path, failed),
                     path.string(), ": is not a regular file\n  fix: remove it: the records of earlier steps are lost");
  std::ifstream file(path, std::ios::binary);
  require<DataError>(file.good(), path.string(), ": cannot be read");
  std::string kept;
  KeptRecords out;
  bool dropped = false;
  for (std::string line; std::getline(file, line);) {
    std::int64_t of = 0;
    const char* number = line.data() + kBegin.size();
    const bool whole = !file.eof() && line.starts_with(kBegin) && line.ends_with('}') &&
                       std::from_chars(number, line.data() + line.size(), of).ec == std::errc();
    if (!whole || of > step) {
      dropped = true;
      continue;
    }
    kept += line + "\n";
    if (out.last > 0 && of > out.last + 1 && out.gap_end == 0) {
      out.gap_begin = out.last + 1;
      out.gap_end = of - 1;
    }
    out.last = std::max(out.last, of);
  }
  file.close();
  if (dropped) replace_file(path, kept);
  return out;
}

MetricsFile::MetricsFile(const std::filesystem::path& path) : file_(path) {}

void MetricsFile::append(const StepRecord& record) {
  // After a crash in the middle of a line, or a failed write that could not be taken back: begin a new line.
  file_.append((file_.ends_with('\n') ? "" : "\n") + json_record(record) + "\n");
}

}  // namespace trireme::metrics
