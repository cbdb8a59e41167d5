#pragma once
// The JSON text of a trace, packed by gzip or not.
#include <filesystem>
#include <string>

namespace trireme::report {

/// DataError that names the file if it cannot be read, is damaged, or has more text than `most`: a small file can be a
/// huge text.
std::string trace_text(const std::filesystem::path& path, std::size_t most = std::size_t{1} << 30);

}  // namespace trireme::report
