#pragma once
// What is wrong with a config, one thing at a time, and all of it as one message.
#include <string>
#include <vector>

#include "trireme/config/read/setting.hpp"

namespace trireme::config {

struct Violation {
  std::string headline;  // the objects and the numbers
  std::string in_list;   // the same for a list without excerpts, when it has to say more there
  Place place;
  std::string detail;  // beside the place: why, or the rule
  std::string fix;
  std::string launch;  // how the ranks were started, where that matters
  // The line of the file and the word in it, where showing them helps.
  std::string excerpt;
  int word_column = 0;  // counted from 1
  int word_length = 0;
};

/// The text after "error: ". One violation is told at length; several become a numbered list.
std::string report(const std::vector<Violation>& violations);

/// Throws ConfigError with the report unless there is nothing to say.
void throw_if_any(const std::vector<Violation>& violations);

}  // namespace trireme::config
