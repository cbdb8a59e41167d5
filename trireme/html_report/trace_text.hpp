#pragma once
// The JSON text of a trace, packed by gzip or not.
#include <filesystem>
#include <string>

namespace trireme::html_report {

/// DataError that names the file if it cannot be read, is damaged, or has more than 1 GiB of text.
std::string trace_text(const std::filesystem::path& path);

}  // namespace trireme::html_report
