#include "trireme/data/prepare/input_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <map>
#include <system_error>

#include <fcntl.h>
#include <fnmatch.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

bool is_json_name(const fs::path& path) {
  const fs::path ending = path.extension();
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

/// A file that belongs to token files, some of which are text: x.ds, x.ds.metadata, x.tokenizer.
bool is_of_token_files(const fs::path& path) {
  std::error_code unknown;
  const auto there = [&](fs::path file, const char* ending) { return fs::exists(file += ending, unknown); };
  const fs::path whole = path.parent_path() / path.stem();
  if (path.extension() == ".ds") return there(path, ".metadata");
  if (whole.extension() == ".ds") return there(whole, "");
  return path.extension() == ".tokenizer" && there(whole, ".bin");
}

std::string_view first_line(std::string_view head) {
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  head = head.substr(0, head.find('\n'));
  return head.substr(0, head.find_last_not_of(" \t\r") + 1);
}

std::string without_mark(std::string head) {
  return head.starts_with(kByteOrderMark) ? head.substr(kByteOrderMark.size()) : head;
}

/// Standard input has no name that tells: it is JSON if it begins like it.
TextLayout layout_of(const InputFile& file, const fs::path& name, const std::string& head) {
  const std::string_view line = first_line(head);
  const bool list = line.starts_with('[');
  if (file.path == "-") {
    std::string_view more = head;
    more.remove_prefix(std::min(more.find_first_not_of(" \t\r\n["), more.size()));
    if (!more.starts_with('{')) return TextLayout::text;
  } else if (!is_json_name(name)) {
    return TextLayout::text;
  }
  return list ? TextLayout::json_list : TextLayout::json_lines;
}

/// The beginning of the file, decompressed if `file` says so.
std::string head_of(const InputFile& file) {
  InputFile part = file;
  const bool once = file.held && !file.held->again;
  if (once)  // what has been read of the pipe, and no more
    part.held = std::make_shared<const HeldInput>(
        HeldInput{OwnedFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), file.held->head, false});
  TextFile reader(part);
  std::string head;
  std::array<char, 4096> some{};
  try {
    for (std::size_t got = some.size(); got == some.size() && head.size() < kHeadBytes;) {
      got = reader.read(some);
      head.append(some.data(), got);
    }
  } catch (const DataError&) {
    if (!once) throw;  // else it is only cut
  }
  return head;
}

/// Fills what the content decides; returns why the file is not one of text.
NotText look_into(InputFile& file) {
  fs::path name = file.path;
  std::string head = head_of(file);
  file.compression = compression_of(head);
  // A file that claims to be compressed and is not is reported by the decompressor.
  if (name.extension() == ".gz" || name.extension() == ".zst") {
    if (file.compression == Compression::none)
      file.compression = name.extension() == ".gz" ? Compression::gzip : Compression::zstd;
    name = name.stem();
  }
  if (file.compression != Compression::none) head = head_of(file);
  head = without_mark(std::move(head));
  if (NotText other = what_is_not_text(head, head.size() < kHeadBytes)) return other;
  file.layout = layout_of(file, name, head);
  const std::string_view line = first_line(head);
  const bool goes_on = line.data() + line.size() < head.data() + head.size();
  if (file.layout == TextLayout::json_lines && name.extension() == ".json" && line.starts_with('{') && goes_on &&
      !line.ends_with('}'))
    return {"one JSON object over several lines", "one object a line, or a list of objects"};
  return {};
}

OwnedFd temporary_file() {
  std::string name = (fs::temp_directory_path() / "trireme-input-XXXXXX").string();
  OwnedFd fd(::mkostemp(name.data(), O_CLOEXEC));
  require<DataError>(static_cast<bool>(fd), name, ": cannot be made: ", errno_text(errno));
  ::unlink(name.c_str());
  return fd;
}

OwnedFd copied(int from, const std::string& shown) {
  OwnedFd copy = temporary_file();
  std::vector<char> bytes(std::size_t{1} << 20);
  for (;;) {
    const std::size_t got = read_input(from, bytes, shown);
    for (std::size_t done = 0; done < got;) {
      const ssize_t put = ::write(copy.get(), bytes.data() + done, got - done);
      if (put < 0 && errno == EINTR) continue;
      require<DataError>(put > 0, shown, ": cannot be copied to ", fs::temp_directory_path().string(), ": ",
                         errno_text(errno), "\n  fix: free space there, another TMPDIR, or write the text to a file");
      done += static_cast<std::size_t>(put);
    }
    if (got < bytes.size()) return copy;
  }
}

InputFile held_input(const std::string& input, bool twice) {
  InputFile file{.path = input};
  OwnedFd fd(input == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                          : ::open(input.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  require<DataError>(static_cast<bool>(fd), file.shown(), ": cannot be opened: ", errno_text(errno));
  require<DataError>(::isatty(fd.get()) == 0, file.shown(),
                     ": is a terminal\n  fix: trireme data prepare - < book.txt, or a pipe");
  bool again = ::lseek(fd.get(), 0, SEEK_CUR) == 0;
  if (!again && twice) {
    fd = copied(fd.get(), file.shown());
    again = true;
  }
  std::string head;
  if (!again) {
    head.resize(kHeadBytes);
    head.resize(read_input(fd.get(), head, file.shown()));
  } else {
    const off_t size = ::lseek(fd.get(), 0, SEEK_END);
    file.bytes = size > 0 ? static_cast<std::uint64_t>(size) : 0;
    ::lseek(fd.get(), 0, SEEK_SET);
  }
  file.held = std::make_shared<const HeldInput>(HeldInput{std::move(fd), std::move(head), again});
  return file;
}

InputFile plain_file(const fs::path& path) {
  InputFile file{.path = path};
  std::error_code error;
  file.bytes = fs::file_size(path, error);
  require<DataError>(!error, path.string(), ": cannot be read: ", error.message());
  return file;
}

InputFile named_file(const std::string& input, bool twice) {
  std::error_code error;
  InputFile file = input != "-" && fs::is_regular_file(input, error) ? plain_file(input) : held_input(input, twice);
  const NotText other = is_of_token_files(input)
                            ? NotText{"part of a token data set", "token files are joined by trireme data merge"}
                            : look_into(file);
  require<DataError>(!other, file.shown(), ": is not text: ", other.what, "\n  fix: ", other.fix);
  return file;
}

bool matches(const std::vector<std::string>& patterns, const fs::path& below) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    const fs::path name = pattern.find('/') == std::string::npos ? below.filename() : below;
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  });
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

/// Why a folder below the named one is not gone into; empty: it is.
std::string why_not_into(const fs::directory_entry& folder) {
  std::error_code error;
  if (folder.is_symlink(error)) return "a link to a folder";
  const fs::directory_iterator opened(folder.path(), error);
  return error ? text("cannot be read: ", error.message()) : "";
}

std::vector<fs::path> files_below(const fs::path& folder, const InputFilter& filter,
                                  std::vector<SkippedFile>& skipped) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    std::error_code unknown;
    const bool is_folder = entries->is_directory(unknown);
    if (hidden(entries->path())) {
      if (is_folder) entries.disable_recursion_pending();
      continue;
    }
    const fs::path below = entries->path().lexically_relative(folder);
    const bool excluded = matches(filter.exclude, below);
    if (is_folder) {
      if (std::string why = why_not_into(*entries); !why.empty()) {
        entries.disable_recursion_pending();
        if (!excluded) skipped.push_back({entries->path(), std::move(why)});
      }
    } else if (!excluded && (filter.include.empty() || matches(filter.include, below))) {
      found.push_back(entries->path());
    }
  }
  require<DataError>(!error, folder.string(), ": cannot be read: ", error.message());
  std::ranges::sort(found);
  return found;
}

/// Why a file of a folder is left out; empty: it is taken.
std::string why_not(const fs::path& path, InputFile& file) {
  std::error_code error;
  if (!fs::exists(path, error)) return "a link to nothing";
  if (!fs::is_regular_file(path, error)) return "not a file";
  if (is_of_token_files(path)) return "part of a token data set";
  file = plain_file(path);
  if (const NotText other = look_into(file)) return other.what;
  return "";
}

void add_folder(const fs::path& folder, const InputFilter& filter, TextInputs& inputs) {
  std::vector<SkippedFile> skipped;
  for (const fs::path& path : files_below(folder, filter, skipped)) {
    InputFile file;
    if (std::string why = why_not(path, file); !why.empty()) {
      skipped.push_back({path, std::move(why)});
    } else {
      file.of_folder = true;
      inputs.files.push_back(std::move(file));
    }
  }
  std::ranges::sort(skipped, {}, &SkippedFile::path);
  std::ranges::move(skipped, std::back_inserter(inputs.skipped));
}

void drop_repeated(TextInputs& inputs) {
  std::map<files::FileIdentity, fs::path> first;
  std::erase_if(inputs.files, [&](const InputFile& file) {
    const auto identity = file.held ? std::nullopt : files::identity_of(file.path);
    if (!identity) return false;
    const auto [before, is_new] = first.try_emplace(*identity, file.path);
    if (is_new) return false;
    inputs.skipped.push_back({file.path, before->second == file.path
                                             ? "taken already"
                                             : text("the same file as ", before->second.string())});
    return true;
  });
}

}  // namespace

TextInputs find_inputs(const std::vector<std::string>& inputs, const InputFilter& filter, bool twice) {
  TextInputs found{.files = {}, .skipped = {}, .named = inputs};
  for (const std::string& input : inputs) {
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    require<DataError>(input == "-" || fs::exists(status), input, ": there is no such file or folder");
    if (input != "-" && fs::is_directory(status))
      add_folder(input, filter, found);
    else
      found.files.push_back(named_file(input, twice));
  }
  drop_repeated(found);
  if (!found.files.empty()) return found;
  std::string what = inputs.empty() ? "nothing to read" : inputs.front();
  what += ": there is no file of text";
  if (!found.skipped.empty())
    what += text(" among ", found.skipped.size(), " (", found.skipped.front().path.string(), ": ",
                 found.skipped.front().why, ")");
  throw DataError(text(what, "\n  fix: name files (.jsonl, .txt, ... or with .gz or .zst) or folders of them",
                       filter.include.empty() && filter.exclude.empty() ? "" : "; see --include and --exclude"));
}

}  // namespace trireme::data
