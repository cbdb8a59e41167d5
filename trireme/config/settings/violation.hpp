#pragma once
// A violated config rule, and the error message for several of them.
#include <string>
#include <vector>

#include "trireme/config/schema/setting.hpp"

namespace trireme::config {

struct Violation {
  std::string headline;  // what is wrong, with names and numbers
  std::string in_list;   // replaces headline in a list, which has no excerpts, if it must say more there
  Place place;
  std::string detail;  // printed next to the place: the reason or the rule
  std::string fix;
  std::string launch;   // how the ranks were started, if relevant
  std::string foreign;  // the other trainer's key, if its value is right there and has no counterpart here
  // The line of the file and the word in it, if showing them helps.
  std::string excerpt;
  int word_column = 0;  // from 1
  int word_length = 0;
};

/// The text after "error: ". A single violation is reported in detail; several as a numbered list.
std::string report(const std::vector<Violation>& violations);

/// Throws ConfigError with the report if there are any violations.
void throw_if_any(const std::vector<Violation>& violations);

}  // namespace trireme::config
