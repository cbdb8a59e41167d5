#pragma once
// The report of one or several runs as one HTML file: no network, light and dark, printable, readable without
// JavaScript.
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/report/run_files.hpp"

namespace trireme::report {

/// At most so many runs are compared: more would not be told apart.
inline constexpr std::size_t kMostRuns = 8;  // colours of style.cpp

struct PageOptions {
  std::string program{};    // "trireme 0.1.0"
  int refresh_seconds = 0;  // the browser loads the page again after so many; 0: never
};

std::string page_html(const std::vector<RunFiles>& runs, const PageOptions& options);

/// The style sheet and the script (style.cpp, script.cpp).
const char* style_css();
const char* script_js();

}  // namespace trireme::report
