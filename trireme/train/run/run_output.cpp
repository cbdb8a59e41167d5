#include "trireme/train/run/run_output.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/metrics/events_file.hpp"

namespace trireme {
namespace {

constexpr double kSpike = 6;  // standard deviations above the mean that trigger a warning

std::unique_ptr<metrics::HubLogger> event_logger(const MetricsConfig& metrics, const std::filesystem::path& folder,
                                                 Log& log) {
  if (!metrics.tensorboard && metrics.hub_command.empty()) return nullptr;
  return std::make_unique<metrics::HubLogger>(
      metrics::HubOptions{.folder = folder, .upload_command = metrics.hub_command}, log);
}

}  // namespace

RunOutput::RunOutput(const Config& config, const std::filesystem::path& folder, std::ostream& out,
                     const TerminalFacts& terminal)
    : console_(out,
               {.mode = metrics::console_mode(config.metrics.console),
                .terminal = terminal,
                .interval = config.metrics.interval,
                .on_warning =
                    [folder](const std::string& words) { metrics::add_event(folder, "warning", {{"text", words}}); }}),
      metrics_(folder / "metrics.jsonl"),
      ranks_(folder / "ranks.jsonl"),
      log_([this](std::string_view line) { console_.warning(std::string(line.substr(0, line.find('\n')))); }),
      events_(event_logger(config.metrics, folder / "tb", log_)) {}

void RunOutput::continue_from(const std::vector<double>& losses, const std::vector<double>& norms) {
  loss_z_ = metrics::ZScore({losses.begin(), losses.end()});
  norm_z_ = metrics::ZScore({norms.begin(), norms.end()});
}

void RunOutput::step(metrics::StepRecord record) {
  record.loss_z = loss_z_.add(record.loss);
  record.grad_norm_z = norm_z_.add(record.grad_norm);
  ++steps_;
  if (record.skipped) ++skipped_;
  if (!record.has_no_label()) {
    if (!first_loss_) first_loss_ = record.loss;
    last_loss_ = record.loss;
  }
  if (steps_ > 1) tokens_per_sec_.push_back(record.tokens_per_sec);  // the first step includes setup
  write(lines_, [&] { metrics_.append(record); });
  if (events_) write(scalars_, [&] { events_->add_scalars_from_list(metrics::log_items(record), record.step); });
  if (record.loss_z && *record.loss_z > kSpike)
    console_.warning(text("loss z = +", human_number(*record.loss_z), " at step ", record.step));
  console_.step(record);
}

void RunOutput::ranks(const metrics::RanksRecord& record) {
  write(rank_lines_, [&] { ranks_.append(record); });
}

void RunOutput::write(metrics::BestEffort& output, const std::function<void()>& record) {
  if (const std::optional<std::string> words = output.attempt(record)) console_.warning(*words);
}

void RunOutput::finish(metrics::RunSummary summary) {
  summary.steps = steps_;
  summary.skipped = skipped_;
  summary.first_loss = first_loss_;
  summary.last_loss = last_loss_;
  if (!tokens_per_sec_.empty()) {
    std::ranges::nth_element(tokens_per_sec_,
                             tokens_per_sec_.begin() + static_cast<std::ptrdiff_t>(tokens_per_sec_.size() / 2));
    summary.median_tokens_per_sec = tokens_per_sec_[tokens_per_sec_.size() / 2];
  }
  for (const metrics::BestEffort* output : {&lines_, &scalars_, &rank_lines_})
    if (output->lost() > 0)
      console_.warning(text(output->what(), " is missing ", output->lost(),
                            output->lost() == 1 ? " record" : " records", ": they could not be written"));
  if (events_)
    if (const std::optional<std::string> failure = events_->close()) console_.warning(*failure);
  console_.finish(summary);
}

}  // namespace trireme
