#pragma once
// Logs scalars to TensorBoard event files and uploads them to a hub in the background, with a user-supplied command.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/log.hpp"
#include "trireme/base/wall_clock.hpp"
#include "trireme/metrics/background_command.hpp"
#include "trireme/metrics/log_item.hpp"
#include "trireme/metrics/tensorboard_logger.hpp"

namespace trireme::metrics {

struct HubOptions {
  std::filesystem::path folder{};
  /// Started without a shell; "{dir}" in any argument is replaced by the folder. Empty: no uploads.
  /// {"huggingface-cli", "upload", "me/run-7", "{dir}"}
  std::vector<std::string> upload_command{};
  std::int64_t every_calls = 100;                   // calls of add_scalars_from_list between uploads
  std::chrono::milliseconds close_timeout{60'000};  // total time that close() waits
};

/// One upload at a time: an upload that is due while another runs starts when that one has ended. A failed upload is
/// logged as a warning and training continues; the next upload sends the same files again.
class HubLogger final : public Logger {
 public:
  /// `log` must outlive the logger.
  HubLogger(HubOptions options, Log& log, WallClock clock = system_wall_clock());

  /// Does not upload; stops a running upload. Call close() for the final upload.
  ~HubLogger() override = default;

  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;

  /// Uploads everything and waits. Returns the error, if any, for the caller to judge: a week of training has not
  /// failed because its curves are not on the hub. Later calls do nothing.
  [[nodiscard]] std::optional<std::string> close();

  const std::filesystem::path& path() const { return events_.path(); }

 private:
  void start_upload();
  void notice_end_of_upload();

  HubOptions options_;
  Log& log_;
  TensorBoardLogger events_;
  std::optional<BackgroundCommand> upload_{};
  std::int64_t calls_since_upload_ = 0;
  bool closed_ = false;
};

}  // namespace trireme::metrics
