#include "trireme/data/tokens/open_tokens.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <system_error>
#include <vector>

#include <fnmatch.h>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/datatrove_tokens.hpp"
#include "trireme/data/tokens/file_tokens.hpp"
#include "trireme/data/tokens/llmc_tokens.hpp"
#include "trireme/data/tokens/megatron_tokens.hpp"
#include "trireme/files/random_reader.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAccepted =
    "\n  accepted: x.ds (datatrove), x for x.idx and x.bin (Megatron), x.bin (llm.c), a folder of files of one format, "
    "or a pattern"
    " such as folder/train_*.bin";

fs::path with(const fs::path& path, const char* ending) { return fs::path(path) += ending; }
fs::path without_ending(fs::path path) { return path.replace_extension(); }

std::optional<TokenFormat> format_of(const fs::path& file) {
  const fs::path ending = file.extension();
  if (ending == ".ds") return TokenFormat::datatrove;
  if (ending == ".idx" || (ending == ".bin" && files::is_there(without_ending(file) += ".idx")))
    return TokenFormat::megatron;
  if (ending == ".bin") return TokenFormat::llmc;
  return std::nullopt;
}

std::unique_ptr<TokenSource> open_file(const fs::path& file, TokenFormat format, const OpenTokensOptions& options) {
  switch (format) {
    case TokenFormat::datatrove: return open_datatrove(file);
    case TokenFormat::megatron: return open_megatron(without_ending(file));
    case TokenFormat::llmc: return open_llmc(file, options.document_end);
  }
  throw InternalError("a token format that does not exist");
}

/// The data sets in `folder` that match `pattern`, without duplicates, sorted by name.
std::vector<fs::path> data_files(const fs::path& folder, const std::string& pattern) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path& file = entries->path();
    if (::fnmatch(pattern.c_str(), file.filename().c_str(), FNM_PERIOD) != 0) continue;
    const auto format = format_of(file);
    std::error_code unknown;  // such as a dangling symlink: opening it reports the error
    if (!format || fs::is_directory(file, unknown)) continue;
    // Megatron's two files are one data set, whichever one the pattern matches.
    found.push_back(format == TokenFormat::megatron ? without_ending(file) += ".idx" : file);
  }
  require<DataError>(!error, folder.string(), ": cannot be read: ", error.message());
  std::ranges::sort(found);
  const auto twice = std::ranges::unique(found);
  found.erase(twice.begin(), twice.end());
  return found;
}

[[noreturn]] void refuse_mixture(const fs::path& train, const fs::path& validation, const std::string& shown,
                                 const std::string& fix) {
  throw DataError(text(shown, ": holds ", train.filename().string(), " and ", validation.filename().string(),
                       ": training and validation data\n  fix: ", fix));
}

/// llm.c's scripts and `data prepare --validation` put training and validation files into one folder; opening it all
/// would train on the validation set.
void check_not_train_and_validation(const std::vector<fs::path>& files, const std::string& shown) {
  const auto has = [&](const char* word) {
    return std::ranges::find_if(
        files, [&](const fs::path& file) { return file.filename().string().find(word) != std::string::npos; });
  };
  const auto train = has("_train_"), val = has("_val_");
  if (train != files.end() && val != files.end())
    refuse_mixture(*train, *val, shown,
                   text("name one kind by a pattern: ", (train->parent_path() / "*_train_*").string(),
                        train->extension().string()));
  constexpr std::string_view kHeldOut = "-validation";
  for (const fs::path& file : files) {
    std::string name = file.string();
    const std::size_t at = name.rfind(kHeldOut);
    if (at == std::string::npos || name.find('/', at) != std::string::npos) continue;
    name.erase(at, kHeldOut.size());
    if (const auto rest = std::ranges::find(files, fs::path(name)); rest != files.end())
      refuse_mixture(*rest, file, shown, text("name the files to train on: ", rest->string()));
  }
}

TokenFiles several_files(const fs::path& folder, const std::string& pattern, const std::string& shown) {
  std::vector<fs::path> files = data_files(folder, pattern);
  require<DataError>(!files.empty(), shown, ": no token files", pattern == "*" ? " in this folder" : " match",
                     kAccepted);
  const TokenFormat format = *format_of(files.front());
  for (const fs::path& file : files)
    require<DataError>(format_of(file) == format, shown, ": holds ", files.front().filename().string(), " (",
                       name(format), ") and ", file.filename().string(), " (", name(*format_of(file)),
                       "); the files of a folder must be of one format",
                       "\n  fix: keep them in different folders, or name one kind by a pattern: folder/*",
                       files.front().extension().string());
  check_not_train_and_validation(files, shown);
  return {format, std::move(files), true};
}

}  // namespace

TokenFiles find_token_files(const fs::path& path) {
  const std::string shown = path.string();
  std::error_code error;
  if (fs::is_directory(path, error)) return several_files(path, "*", shown);
  if (files::is_there(path)) {
    const auto format = format_of(path);
    const fs::path whole = without_ending(path);
    if (!format && whole.extension() == ".ds")
      throw DataError(text(shown, ": is a part of ", whole.string(), "\n  fix: name ", whole.string()));
    require<DataError>(format.has_value(), shown, ": is not a token file by its name", kAccepted);
    return {*format, {path}, false};
  }
  if (files::is_there(with(path, ".idx"))) return {TokenFormat::megatron, {with(path, ".idx")}, false};
  if (files::is_there(with(path, ".ds"))) return {TokenFormat::datatrove, {with(path, ".ds")}, false};
  if (files::is_there(with(path, ".bin"))) return {TokenFormat::llmc, {with(path, ".bin")}, false};
  if (path.filename().string().find_first_of("*?") != std::string::npos)
    return several_files(path.has_parent_path() ? path.parent_path() : ".", path.filename().string(), shown);
  throw DataError(text(shown, ": there is no such file or folder, and no ", shown, ".idx, .ds or .bin", kAccepted));
}

std::unique_ptr<TokenSource> open_tokens(const fs::path& path, const OpenTokensOptions& options) {
  const TokenFiles found = find_token_files(path);
  if (!found.several) return open_file(found.files.front(), found.format, options);
  std::vector<std::unique_ptr<TokenSource>> parts;
  for (const fs::path& file : found.files) parts.push_back(open_file(file, found.format, options));
  return std::make_unique<ConcatenatedTokens>(path.string(), std::move(parts));
}

}  // namespace trireme::data
