#include "trireme/runtime/launcher/rank_output.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/process_limits.hpp"

namespace trireme::launcher {
namespace {

constexpr std::size_t kAtOnce = 64 * 1024;
constexpr std::size_t kTail = 16 * 1024;
constexpr std::size_t kWithoutWaiting = 4096;  // a pipe that poll reports as writable accepts that much (PIPE_BUF)

std::size_t bytes_there(int fd) {
  int size = 0;
  return ::ioctl(fd, FIONREAD, &size) == 0 && size > 0 ? static_cast<std::size_t>(size) : 0;
}

}  // namespace

bool same_file(int fd, int other) {
  struct stat a{}, b{};
  return ::fstat(fd, &a) == 0 && ::fstat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void EchoQueue::add(std::string_view bytes) {
  if (broken_) return;
  if (!waiting()) progress_ = Clock::now();
  if (is_full() && !full_until()) {
    dropped_ += bytes.size();
  } else {
    pending_ += bytes;
  }
}

std::optional<EchoQueue::Clock::time_point> EchoQueue::full_until() const {
  const Clock::time_point until = progress_ + kPatience;
  return is_full() && Clock::now() < until ? std::optional(until) : std::nullopt;
}

void EchoQueue::write_some() {
  const ssize_t written = ::write(fd_, pending_.data() + sent_, std::min(pending_.size() - sent_, kWithoutWaiting));
  if (written >= 0) {
    sent_ += static_cast<std::size_t>(written);
    progress_ = Clock::now();
    if (dropped_ > 0)
      pending_ += text("\n[trireme: ", human_bytes(static_cast<double>(std::exchange(dropped_, 0))),
                       " of output are missing here: nothing was read for ", kPatience.count() / 1000,
                       " s. The log files are complete]\n");
  } else if (errno != EINTR && errno != EAGAIN) {
    broken_ = true;
    drop();
  }
  if (sent_ * 2 < pending_.size()) return;  // moving the rest each time would be quadratic
  pending_.erase(0, sent_);
  sent_ = 0;
}

RankOutput::RankOutput(const std::string& log_file, EchoQueue* out, EchoQueue* err) : log_file_(log_file) {
  if (!log_file.empty()) {
    log_ = OwnedFd(::open(log_file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    require<ConfigError>(static_cast<bool>(log_), log_file, ": cannot be opened for writing: ", errno_text(errno));
    log_ = above_stdio(std::move(log_), "a log");
  }
  const std::size_t pipes = out == err ? 1 : 2;
  for (std::size_t i = 0; i < pipes; ++i) {
    Pipe pipe = make_pipe();
    ::fcntl(pipe.read.get(), F_SETFL, O_NONBLOCK);
    write_ends_[i] = std::move(pipe.write);
    sources_.push_back({std::move(pipe.read), i == 0 ? out : err});
  }
}

void RankOutput::close_write_ends() {
  for (OwnedFd& fd : write_ends_) fd.reset();
}

void RankOutput::read_some(Source& source, const Tell& tell) {
  if (!read_up_to(source, kAtOnce, tell)) source.fd.reset();
}

void RankOutput::drain_and_close(const Tell& tell) {
  for (Source& source : sources_) {
    std::size_t left = source.fd ? bytes_there(source.fd.get()) : 0;
    while (left > 0 && read_up_to(source, std::min(left, kAtOnce), tell))
      left = std::min(left - std::min(left, kAtOnce), bytes_there(source.fd.get()));
    source.fd.reset();
  }
}

bool RankOutput::read_up_to(Source& source, std::size_t size, const Tell& tell) {
  std::array<char, kAtOnce> buffer;
  const ssize_t got = ::read(source.fd.get(), buffer.data(), size);
  if (got < 0) return errno == EINTR || errno == EAGAIN;
  if (got == 0) return false;
  const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
  keep(bytes, tell);
  if (source.echo != nullptr) source.echo->add(bytes);
  return true;
}

void RankOutput::keep(std::string_view bytes, const Tell& tell) {
  tail_ += bytes;
  if (tail_.size() > 4 * kTail) tail_.erase(0, tail_.size() - kTail);
  const int error = log_ ? write_all(log_.get(), bytes) : 0;
  if (error != 0) tell(text("cannot write ", log_file_, ": ", write_error_text(error), "; the ranks go on"));
}

std::vector<std::string> RankOutput::last_lines(std::size_t most) const {
  std::string_view rest(tail_);
  std::vector<std::string> lines;
  while (!rest.empty() && lines.size() < most) {
    if (rest.ends_with('\n')) rest.remove_suffix(1);
    const std::size_t begin = rest.find_last_of('\n') + 1;  // npos + 1 is 0
    std::string_view line = rest.substr(begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(line.find_last_of('\r') + 1);  // the last state of a progress bar
    lines.emplace_back(line.substr(0, 500));
    rest = rest.substr(0, begin);
  }
  while (!lines.empty() && lines.front().empty()) lines.erase(lines.begin());
  std::ranges::reverse(lines);
  return lines;
}

}  // namespace trireme::launcher
