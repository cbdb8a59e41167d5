#pragma once
// Small files read as a whole, and which file a path means.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <sys/types.h>

namespace trireme::files {

/// The bytes of a file. DataError if it cannot be read, and if it has more than `max_bytes`: "`what` has at most ...".
std::string whole_file(const std::filesystem::path& path, std::uint64_t max_bytes, std::string_view what);

using FileIdentity = std::pair<dev_t, ino_t>;  // the same for links and for every spelling of a path

/// nullopt for a file that is not there: opening it reports the error.
std::optional<FileIdentity> identity_of(const std::filesystem::path& file);

}  // namespace trireme::files
