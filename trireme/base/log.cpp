#include "trireme/base/log.hpp"

#include <array>
#include <chrono>
#include <ctime>
#include <ostream>
#include <type_traits>
#include <utility>
#include <variant>

#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"

namespace trireme {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

/// Control characters would break the line or control the terminal.
void append_printable(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\r') {
    out += "\\r";
  } else if (c == '\t') {
    out += "\\t";
  } else if (is_control(c)) {
    out += "\\x";
    out += kHex[static_cast<unsigned char>(c) >> 4];
    out += kHex[static_cast<unsigned char>(c) & 15];
  } else {
    out += c;
  }
}

std::string value_text(const LogField::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, bool>) {
          return v ? "true" : "false";
        } else if constexpr (std::is_same_v<T, double>) {
          return human_number(v);
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return log_word(v);
        } else {
          return std::to_string(v);
        }
      },
      value);
}

/// 2026-11-15T00:31:07.042Z
std::string time_text(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const std::time_t seconds = std::chrono::system_clock::to_time_t(whole);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> buffer;
  std::string out(buffer.data(), std::strftime(buffer.data(), buffer.size(), "%Y-%m-%dT%H:%M:%S", &utc));
  const std::string fraction =
      std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time - whole).count());
  return out.append(".").append(3 - fraction.size(), '0').append(fraction).append("Z");
}

std::string_view level_text(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return "debug: ";
    case LogLevel::info: return "info: ";
    case LogLevel::warning: return "warning: ";
    case LogLevel::error: return "error: ";
  }
  return "";
}

}  // namespace

LogSink fd_sink(int fd) {
  return [fd](std::string_view line) { static_cast<void>(write_all(fd, line)); };
}

LogSink stream_sink(std::ostream& out) {
  return [&out](std::string_view line) { out.write(line.data(), static_cast<std::streamsize>(line.size())).flush(); };
}

std::string log_word(std::string_view text) {
  bool plain = !text.empty();
  for (const char c : text) plain = plain && !is_control(c) && c != ' ' && c != '"' && c != '=';
  if (plain) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    append_printable(out, c);
  }
  return out += '"';
}

Log::Log(LogSink sink, LogOptions options) : sink_(std::move(sink)), options_(std::move(options)) {}

void Log::write_line(LogLevel level, std::string_view event, Fields fields) {
  std::string line;
  if (options_.clock) line.append(time_text(options_.clock())).append(" ");
  if (!options_.prefix.empty()) line.append("[").append(options_.prefix).append("] ");
  line.append(level_text(level));
  for (const char c : event) append_printable(line, c);
  for (const auto& [key, value] : fields) line.append(" ").append(key).append("=").append(value_text(value));
  line += '\n';
  const std::lock_guard lock(one_line_at_a_time_);
  sink_(line);
}

}  // namespace trireme
