#pragma once
// Names for files and folders that are not complete yet, and the removal of those whose process is gone.
#include <filesystem>
#include <string_view>

namespace trireme {

/// PATH.tmp-HOST-PID-NUMBER. HOST is a short hash of this host and PID namespace: only there does PID mean something.
std::filesystem::path temporary_name(const std::filesystem::path& path, int number);

/// Whether a file name is a temporary name of this process.
bool is_own_temporary(std::string_view name);

/// Removes what processes of this host that are gone left behind: under temporary names of `path`.
void remove_leftovers(const std::filesystem::path& path);
/// The same, of every path in `folder`, which need not exist.
void remove_leftovers_in(const std::filesystem::path& folder);

}  // namespace trireme
