#pragma once
// Scalars to TensorBoard event files that a command of the user's choice sends to a hub, beside the training.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/background_command.hpp"
#include "trireme/base/log.hpp"
#include "trireme/base/log_item.hpp"
#include "trireme/base/tensorboard_logger.hpp"
#include "trireme/base/wall_clock.hpp"

namespace trireme {

struct HubOptions {
  std::filesystem::path folder{};
  /// Started without a shell; "{dir}" in any word is replaced by the folder. Empty: no uploads.
  /// {"huggingface-cli", "upload", "me/run-7", "{dir}"}
  std::vector<std::string> upload_command{};
  std::int64_t every_calls = 100;                   // of add_scalars_from_list
  std::chrono::milliseconds close_timeout{60'000};  // for all that close() waits for
};

/// One upload at a time: one that is due while another runs begins when that has ended. An upload that fails is a
/// warning in the log, and the training goes on; the next one sends the same files again.
class HubLogger final : public Logger {
 public:
  /// `log` must outlive the logger.
  HubLogger(HubOptions options, Log& log, WallClock clock = system_wall_clock());

  /// Does not upload; stops an upload that runs. Call close() for the last one.
  ~HubLogger() override = default;

  void add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) override;

  /// Uploads what there is and waits for it. Returns what went wrong, for the caller to judge: a run that trained for a
  /// week has not failed because its curves are not on the hub. Later calls do nothing.
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

}  // namespace trireme
