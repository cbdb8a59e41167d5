#include "trireme/runtime/rank/fingerprint.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include <torch/version.h>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/config/schema/fields.hpp"

namespace trireme {
namespace {

std::string hash_of_program() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::uint64_t hash = kFnvStart;
  std::array<char, 1 << 16> chunk;
  while (file.read(chunk.data(), chunk.size()) || file.gcount() > 0)
    for (std::streamsize i = 0; i + 8 <= file.gcount(); i += 8) {  // 8 bytes at a time: a debug build has 100 MB
      std::uint64_t word;
      std::memcpy(&word, chunk.data() + i, sizeof word);
      hash = (hash ^ word) * kFnvPrime;
      hash ^= hash >> 32;
    }
  char digits[20];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string one_line(const std::string& value) {
  std::string line;
  for (char c : value) line += c == '\n' ? std::string("\\n") : c == '\\' ? std::string("\\\\") : std::string(1, c);
  return line;
}

std::string as_it_was(const std::string& line) {
  std::string value;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      ++i;
      value += line[i] == 'n' ? '\n' : line[i];
    } else {
      value += line[i];
    }
  }
  return value;
}

}  // namespace

Fingerprint fingerprint_of_process() { return {{"program", hash_of_program()}, {"libtorch", TORCH_VERSION}}; }

Fingerprint fingerprint_of_config(Config config) {
  Fingerprint fingerprint;
  for (const config::Field& field : config::fields(config)) fingerprint[field.key] = config::toml_text(field.value);
  return fingerprint;
}

std::string to_text(const Fingerprint& fingerprint) {
  std::string lines;
  for (const auto& [key, value] : fingerprint) lines += text(one_line(key), "=", one_line(value), "\n");
  return lines;
}

Fingerprint fingerprint_from_text(const std::string& words) {
  Fingerprint fingerprint;
  std::istringstream lines(words);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find('='); at != std::string::npos)
      fingerprint[as_it_was(line.substr(0, at))] = as_it_was(line.substr(at + 1));
  return fingerprint;
}

std::string differences(int rank_a, const Fingerprint& a, int rank_b, const Fingerprint& b) {
  std::set<std::string> keys;
  for (const auto& [key, value] : a) keys.insert(key);
  for (const auto& [key, value] : b) keys.insert(key);
  const auto shown = [](const Fingerprint& f, const std::string& key) {
    const auto at = f.find(key);
    return at == f.end() ? std::string("(none)") : at->second;
  };
  std::string lines;
  for (const std::string& key : keys)
    if (shown(a, key) != shown(b, key))
      lines += text("\n  ", key, ": rank ", rank_a, " has ", shown(a, key), ", rank ", rank_b, " has ", shown(b, key));
  return lines;
}

}  // namespace trireme
