#include "trireme/metrics/status_line.hpp"

#include "trireme/base/utf8.hpp"

namespace trireme::metrics {

void StatusLine::show(const std::string& text) {
  if (!shown_ || static_cast<int>(display_width(text)) >= width_) return;
  out_ << "\r\x1B[K" << text << std::flush;
  drawn_ = true;
}

void StatusLine::erase() {
  if (std::exchange(drawn_, false)) out_ << "\r\x1B[K" << std::flush;
}

}  // namespace trireme::metrics
