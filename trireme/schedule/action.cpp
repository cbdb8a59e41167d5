#include "trireme/schedule/action.hpp"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

constexpr std::string_view kOps = "FBIW";  // in the order of ActionKind

/// Parses an unsigned number at the front of `rest` and removes it; -1 if there is none.
int take_number(std::string_view& rest) {
  int value = -1;
  if (rest.empty() || rest.front() == '-') return -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) return -1;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return value;
}

}  // namespace

std::string str(const Action& step) {
  return std::to_string(step.chunk) + kOps[static_cast<std::size_t>(step.op)] + std::to_string(step.microbatch);
}

int microbatches_in_flight(const Program& program) {
  int now = 0, most = 0;
  for (const Action& action : program) {
    if (action.op == ActionKind::F) ++now;
    if (action.op == ActionKind::B || action.op == ActionKind::I) --now;
    most = std::max(most, now);
  }
  return most;
}

std::string str(const Program& program) {
  std::string out;
  for (const Action& step : program) out += (out.empty() ? "" : " ") + str(step);
  return out;
}

Action parse_action(std::string_view word) {
  std::string_view rest = word;
  const int chunk = take_number(rest);
  const std::size_t op = rest.empty() ? std::string_view::npos : kOps.find(rest.front());
  if (!rest.empty()) rest.remove_prefix(1);
  const int microbatch = take_number(rest);
  require<ConfigError>(chunk >= 0 && op != std::string_view::npos && microbatch >= 0 && rest.empty(), "schedule step '",
                       word, "' is not a chunk, one of F B I W, and a microbatch, such as 0F3");
  return {static_cast<ActionKind>(op), chunk, microbatch};
}

Program parse_program(std::string_view text) {
  Program program;
  constexpr std::string_view kSpaces = " \t\r\n";
  for (std::size_t begin = text.find_first_not_of(kSpaces); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kSpaces, begin), text.size());
    program.push_back(parse_action(text.substr(begin, end - begin)));
    begin = text.find_first_not_of(kSpaces, end);
  }
  return program;
}

}  // namespace trireme::schedule
