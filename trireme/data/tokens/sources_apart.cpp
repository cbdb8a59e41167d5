#include "trireme/data/tokens/sources_apart.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme::data {
namespace {

using files::FileIdentity;

struct NamedFile {
  std::string source, file;
};

/// nullopt for a file that cannot be read: opening it reports the error.
std::optional<FileIdentity> identity_of_tokens(std::filesystem::path file) {
  if (file.extension() == ".idx") file.replace_extension(".bin");  // Megatron's tokens
  return files::identity_of(file);
}

template <class F>
void each_file(const std::vector<std::string>& sources, const F& f) {
  for (auto source = sources.begin(); source != sources.end(); ++source) {
    if (*source == "synthetic" || std::find(sources.begin(), source, *source) != source) continue;
    for (const std::filesystem::path& file : find_token_files(*source).files)
      if (const auto identity = identity_of_tokens(file)) f(*identity, NamedFile{*source, file.string()});
  }
}

/// "data/x.ds", or "data/x.ds (of data)"
std::string shown_file(const NamedFile& named) {
  return named.file == named.source ? named.file : text(named.file, " (of ", named.source, ")");
}

}  // namespace

std::vector<std::string> check_sources_apart(const std::vector<std::string>& training,
                                             const std::vector<std::string>& validation) {
  std::vector<std::string> warnings;
  std::map<FileIdentity, NamedFile> trained_on;
  each_file(training, [&](const FileIdentity& identity, const NamedFile& file) {
    const auto [first, is_new] = trained_on.try_emplace(identity, file);
    if (!is_new)
      warnings.push_back(text("two sources of [[data]] hold the same tokens: ", shown_file(first->second), " and ",
                              shown_file(file), "; they count as different ones, each with its own order"));
  });
  each_file(validation, [&](const FileIdentity& identity, const NamedFile& file) {
    const auto found = trained_on.find(identity);
    if (found == trained_on.end()) return;
    throw DataError(text("validation.sources and [[data]] hold the same tokens: ", shown_file(file), " and ",
                         shown_file(found->second),
                         "\n  fix: other files to validate on (trireme data prepare --validation 0.01 makes them), or "
                         "validation.fraction, which holds tokens out"));
  });
  return warnings;
}

}  // namespace trireme::data
