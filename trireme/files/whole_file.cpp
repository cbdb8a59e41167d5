#include "trireme/files/whole_file.hpp"

#include <span>

#include <sys/stat.h>

#include "trireme/base/error.hpp"
#include "trireme/files/random_reader.hpp"

namespace trireme::files {

std::string whole_file(const std::filesystem::path& path, std::uint64_t max_bytes, std::string_view what) {
  const RandomReader file(path);
  require<DataError>(file.size() <= max_bytes, path.string(), ": ", file.size(), " bytes; ", what, " has at most ",
                     max_bytes);
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

std::optional<FileIdentity> identity_of(const std::filesystem::path& file) {
  struct stat facts{};
  if (::stat(file.c_str(), &facts) != 0) return std::nullopt;
  return FileIdentity{facts.st_dev, facts.st_ino};
}

}  // namespace trireme::files
