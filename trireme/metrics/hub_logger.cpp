#include "trireme/metrics/hub_logger.hpp"

#include <cstddef>
#include <string_view>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme::metrics {
namespace {

std::string replace_all(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size()) {
    text.replace(at, what.size(), with);
  }
  return text;
}

HubOptions checked(HubOptions options) {
  require<ConfigError>(options.every_calls >= 1, "hub logger: an upload every ", options.every_calls,
                       " calls is not possible\n  fix: at least 1, or no upload command");
  for (std::string& word : options.upload_command) word = replace_all(word, "{dir}", options.folder.string());
  return options;
}

}  // namespace

HubLogger::HubLogger(HubOptions options, Log& log, WallClock clock)
    : options_(checked(std::move(options))), log_(log), events_(options_.folder, std::move(clock)) {}

void HubLogger::add_scalars_from_list(const std::vector<LogItem>& entries, std::int64_t iteration_step) {
  events_.add_scalars_from_list(entries, iteration_step);
  if (options_.upload_command.empty() || closed_) return;
  notice_end_of_upload();
  ++calls_since_upload_;
  if (upload_ || calls_since_upload_ < options_.every_calls) return;
  try {
    start_upload();
  } catch (const ConfigError& error) {
    log_.warning("upload to the hub failed", {{"why", error.what()}});
  }
}

std::optional<std::string> HubLogger::close() {
  if (std::exchange(closed_, true) || options_.upload_command.empty()) return std::nullopt;
  const auto deadline = std::chrono::steady_clock::now() + options_.close_timeout;
  const auto time_left = [&] {
    return std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  };
  // A running upload may have started before the last values were written: it does not count as the final one.
  if (upload_ && upload_->wait_for(time_left())) notice_end_of_upload();
  std::optional<CommandEnd> end;
  if (!upload_) {
    try {
      start_upload();
    } catch (const ConfigError& error) {
      return error.what();
    }
    end = upload_->wait_for(time_left());
  }
  upload_.reset();
  if (!end) return text("the last upload to the hub did not end within ", options_.close_timeout.count(), " ms");
  if (!end->ok) return "the last upload to the hub failed: " + end->how;
  return std::nullopt;
}

void HubLogger::start_upload() {
  calls_since_upload_ = 0;
  upload_.emplace(options_.upload_command);
}

void HubLogger::notice_end_of_upload() {
  const std::optional<CommandEnd> end = upload_ ? upload_->poll() : std::nullopt;
  if (!end) return;
  if (!end->ok) log_.warning("upload to the hub failed", {{"why", end->how}});
  upload_.reset();
}

}  // namespace trireme::metrics
