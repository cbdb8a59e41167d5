#include "trireme/files/json_bounds.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

/// The position of the closing quote of the string that starts at `begin`, or the end of `json`.
std::size_t end_of_text(std::string_view json, std::size_t begin) {
  for (std::size_t at = begin;;) {
    const std::size_t quote = json.find('"', at);
    if (quote == std::string_view::npos) return json.size();
    std::size_t slashes = 0;
    while (quote - slashes > at && json[quote - slashes - 1] == '\\') ++slashes;
    if (slashes % 2 == 0) return quote;
    at = quote + 1;
  }
}

}  // namespace

// In invalid JSON, quotes may pair up differently here; but the library stops at the error, and agrees up to there.
std::string json_bounds_fault(std::string_view json, std::size_t max_bytes, std::size_t max_depth) {
  if (json.size() > max_bytes) return text(json.size(), " bytes of JSON; at most ", max_bytes, " are allowed");
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos)
    return text("a NUL at byte ", nul, " of its JSON");
  std::size_t depth = 0;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t quote = std::min(json.find('"', at), json.size());
    if (quote - at > kMaxJsonGapBytes)
      return text(quote - at, " bytes without a text from byte ", at, " on; at most ", kMaxJsonGapBytes,
                  " are allowed between two texts");
    for (const char c : json.substr(at, quote - at)) {
      if ((c == '[' || c == '{') && ++depth > max_depth)
        return text("nested more than ", max_depth, " deep, before byte ", quote);
      if ((c == ']' || c == '}') && depth > 0) --depth;
    }
    const std::size_t end = end_of_text(json, quote + 1);
    if (end > quote + 1 + kMaxJsonTextBytes)
      return text("a text of ", end - quote - 1, " bytes at byte ", quote, "; at most ", kMaxJsonTextBytes,
                  " are allowed");
    at = end + 1;
  }
  return {};
}

void check_json_bounds(std::string_view json, const std::string& file) {
  const std::string fault = json_bounds_fault(json);
  require<CheckpointError>(fault.empty(), file, ": ", fault,
                           json.size() > kMaxJsonBytes ? "\n  fix: write the tensors to several files" : "");
}

std::string json_fault(std::string_view what) {
  const std::size_t begin = what.find("syntax error");
  if (begin != std::string_view::npos)
    what.remove_prefix(begin);
  else if (const std::size_t bracket = what.find("] "); bracket != std::string_view::npos)
    what.remove_prefix(bracket + 2);
  what = what.substr(0, what.find("; last read"));
  const std::string quoted = shown_name(what);
  return quoted.substr(1, quoted.rfind('"') - 1);
}

}  // namespace trireme::files
