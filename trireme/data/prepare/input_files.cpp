#include "trireme/data/prepare/input_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCompressedBytes = std::size_t{1} << 18;

// Read as text these would be tokenized silently, and only the loss would show it.
constexpr std::array<std::string_view, 23> kNotText = {
    ".parquet", ".arrow", ".zst", ".xz",  ".bz2", ".zip",   ".tar",         ".tgz", ".7z",  ".bin",   ".idx", ".ds",
    ".npy",     ".npz",   ".pt",  ".pkl", ".pdf", ".index", ".safetensors", ".png", ".jpg", ".model", ".docx"};

InputFile input_file(const fs::path& path) {
  InputFile file{.path = path, .json_lines = false, .gzip = path.extension() == ".gz", .bytes = 0};
  const std::string ending = (file.gzip ? path.stem() : path).extension().string();
  file.json_lines = ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
  if (std::ranges::find(kNotText, ending) != kNotText.end())
    throw DataError(text(path.string(), ": is not text by its name",
                         "\n  fix: JSON lines (.jsonl) or text, compressed by gzip (.gz) or not; token files are "
                         "joined by trireme data merge"));
  std::error_code error;
  require<DataError>(fs::is_regular_file(path, error), path.string(), ": is not a file that can be read twice",
                     "\n  fix: write its text to a file first");
  file.bytes = fs::file_size(path, error);
  require<DataError>(!error, path.string(), ": cannot be read: ", error.message());
  return file;
}

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

void add_folder(const fs::path& folder, std::vector<InputFile>& files) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    std::error_code unknown;
    const bool is_folder = entries->is_directory(unknown);
    if (hidden(entries->path())) {
      if (is_folder) entries.disable_recursion_pending();
    } else if (!is_folder) {
      found.push_back(entries->path());
    }
  }
  require<DataError>(!error, folder.string(), ": cannot be read: ", error.message());
  std::ranges::sort(found);
  for (const fs::path& path : found) files.push_back(input_file(path));
}

}  // namespace

std::vector<InputFile> input_files(std::span<const std::string> inputs) {
  std::vector<InputFile> files;
  for (const std::string& input : inputs) {
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    require<DataError>(fs::exists(status), input, ": there is no such file or folder");
    if (fs::is_directory(status))
      add_folder(input, files);
    else
      files.push_back(input_file(input));
  }
  require<DataError>(
      !files.empty(), inputs.empty() ? "nothing to read" : inputs.front(),
      ": there is no file of text\n  fix: name files (.jsonl, .txt, ... or with .gz) or folders of them");
  return files;
}

TextFile::TextFile(const InputFile& file) : shown_(file.path.string()) {
  fd_ = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  require<DataError>(fd_ >= 0, shown_, ": cannot be opened: ", errno_text(errno));
  ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  if (!file.gzip) return;
  gunzip_.emplace(shown_);
  compressed_.resize(kCompressedBytes);
}

TextFile::TextFile(TextFile&& other) noexcept
    : shown_(std::move(other.shown_)),
      fd_(std::exchange(other.fd_, -1)),
      taken_(other.taken_),
      gunzip_(std::move(other.gunzip_)),
      compressed_(std::move(other.compressed_)),
      waiting_(std::exchange(other.waiting_, {})) {}  // a view into a long string, which is not relocated by a move

TextFile& TextFile::operator=(TextFile&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  shown_ = std::move(other.shown_);
  fd_ = std::exchange(other.fd_, -1);
  taken_ = other.taken_;
  gunzip_ = std::move(other.gunzip_);
  compressed_ = std::move(other.compressed_);
  waiting_ = std::exchange(other.waiting_, {});
  return *this;
}

TextFile::~TextFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::size_t TextFile::read_raw(std::span<char> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got = ::read(fd_, out.data() + done, out.size() - done);
    if (got < 0 && errno == EINTR) continue;
    require<DataError>(got >= 0, shown_, ": cannot be read at byte ", taken_, ": ", errno_text(errno));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
    taken_ += static_cast<std::uint64_t>(got);
  }
  return done;
}

std::size_t TextFile::read(std::span<char> out) {
  if (!gunzip_) return read_raw(out);
  std::size_t done = 0;
  while (done < out.size()) {
    if (waiting_.empty()) {
      waiting_ = std::string_view(compressed_).substr(0, read_raw(compressed_));
      if (waiting_.empty()) {
        gunzip_->finish();
        break;
      }
    }
    done += gunzip_->next(waiting_, out.subspan(done));
  }
  return done;
}

}  // namespace trireme::data
