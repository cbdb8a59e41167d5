#include "trireme/runtime/launcher/hostfile.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/runtime/environment/nodelist.hpp"
#include "trireme/runtime/environment/variables.hpp"

namespace trireme::launcher {
namespace {

constexpr int kMaxSlots = 65'536;

/// The line's host; nullopt if it is empty. `place` is "FILE:LINE".
std::optional<Host> parse_host_line(const std::string& place, const std::string& line, int default_slots) {
  std::istringstream words(line.substr(0, line.find('#')));
  Host host{"", default_slots};
  if (!(words >> host.name)) return std::nullopt;
  const auto fail = [&](const auto&... why) {
    throw ConfigError(text("host \"", host.name, "\": ", why..., "\n  --> ", place));
  };
  // Other characters: ssh would take the name for an option, or a shell would split it.
  constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:@%";
  if (host.name.starts_with('-') || host.name.find_first_not_of(kAllowed) != std::string::npos)
    fail("not the name of a host");
  bool has_slots = false;
  for (std::string word; words >> word;) {
    if (!word.starts_with("slots=")) fail("did not expect \"", word, "\"\n  fix: ", host.name, " slots=4");
    if (has_slots) fail("slots= is given twice");
    host.slots = strict_number(text(place, ": slots"), word.substr(6), 1, kMaxSlots);
    has_slots = true;
  }
  if (host.slots < 1) fail("has no slots\n  fix: ", host.name, " slots=4, or -n for all hosts");
  return host;
}

}  // namespace

std::vector<Host> parse_hostfile(const std::string& file_name, std::string_view contents, int default_slots) {
  std::vector<Host> hosts;
  std::istringstream lines{std::string(contents)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string place = text(file_name, ":", ++number);
    const std::optional<Host> host = parse_host_line(place, line, default_slots);
    if (!host) continue;
    require<ConfigError>(std::ranges::find(hosts, host->name, &Host::name) == hosts.end(), "host \"", host->name,
                         "\": is listed twice\n  --> ", place, "\n  fix: one line per host, with all its slots");
    require<ConfigError>(hosts.size() < kMaxHosts, "more than ", kMaxHosts, " hosts\n  --> ", place);
    hosts.push_back(*host);
  }
  require<ConfigError>(!hosts.empty(), file_name, ": names no host");
  return hosts;
}

std::vector<Host> read_hostfile(const std::string& file_name, int default_slots) {
  const std::ifstream in(file_name, std::ios::binary);
  std::ostringstream contents;
  contents << in.rdbuf();
  const bool folder = std::filesystem::is_directory(file_name);
  require<ConfigError>(in.is_open() && !folder, file_name, ": cannot be read", folder ? ": it is a folder" : "");
  return parse_hostfile(file_name, contents.str(), default_slots);
}

}  // namespace trireme::launcher
