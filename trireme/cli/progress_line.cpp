#include "trireme/cli/progress_line.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/utf8.hpp"

namespace trireme::cli {

void ProgressLine::show(const data::DataProgress& progress) {
  using namespace std::chrono_literals;
  const auto now = Clock::now();
  if (!shown_ || now - last_ < 200ms) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - begun_).count();
  const double share = progress.of > 0 ? static_cast<double>(progress.taken) / static_cast<double>(progress.of) : 0;
  // A pipe does not tell how long it is.
  const std::string begin = progress.of > 0 ? text(what_, " ", std::lround(100 * share), "%")
                                            : text(what_, " ", human_bytes(static_cast<double>(progress.taken)));
  std::string line = begin;
  if (progress.read_bytes > 0) {
    std::array<char, 32> rate{};
    std::snprintf(rate.data(), rate.size(), "%.1f", static_cast<double>(progress.read_bytes) / 1e6 / seconds);
    line += text(" · ", rate.data(), " MB/s");
  }
  if (progress.tokens > 0) line += text(" · ", human_count(static_cast<double>(progress.tokens)), " tokens");
  if (share > 0) line += text(" · ", human_seconds(std::round(seconds * (1 - share) / share)), " left");
  if (static_cast<int>(display_width(line)) >= width_) line = begin;
  out_ << "\r\x1B[K" << line << std::flush;
  drawn_ = true;
}

void ProgressLine::clear() {
  if (drawn_) out_ << "\r\x1B[K" << std::flush;
  drawn_ = false;
}

}  // namespace trireme::cli
