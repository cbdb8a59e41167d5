#include "trireme/files/safetensors_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/files/open_beneath.hpp"
#include "trireme/files/safetensors_index.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownNames = 20;

class FolderFd {
 public:
  explicit FolderFd(const fs::path& folder) : fd_(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    require<CheckpointError>(fd_ >= 0, folder.string(), ": cannot be opened: ", std::strerror(errno));
  }
  ~FolderFd() { ::close(fd_); }
  FolderFd(const FolderFd&) = delete;
  FolderFd& operator=(const FolderFd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

/// `names` may be truncated; `num_all` is the full count.
std::string shown_list(const std::vector<std::string>& names, std::size_t num_all) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kShownNames); ++i)
    out += (i == 0 ? "" : ", ") + shown_name(names[i]);
  return num_all > kShownNames ? text(out, " and ", num_all - kShownNames, " more") : out;
}

/// Opens a file of the folder by Note [Links in a model folder]. A missing file is -1; any other failure throws.
int opened_in(const FolderFd& folder_fd, const fs::path& folder, const std::string& file, const std::string& of) {
  const int fd = open_in_folder(folder_fd.get(), file);
  const int error = errno;
  if (fd >= 0 || error == ENOENT) return fd;
  // errno for a symlink, or for one that the kernel found to lead outside
  require<SecurityError>(error != ELOOP && error != EXDEV, folder.string(), ": the file ", shown_name(file), of,
                         " is a link out of the folder, or to another link",
                         "\n  fix: put the file itself there; only a Hugging Face cache may link to its blobs");
  throw CheckpointError(text((folder / file).string(), ": cannot be opened: ", std::strerror(error)));
}

MappedFile mapped_in(const fs::path& folder, const std::string& file) {
  const int fd = opened_in(FolderFd(folder), folder, file, "");
  const std::string shown = (folder / file).string();
  require<CheckpointError>(fd >= 0, shown, ": cannot be opened: ", std::strerror(ENOENT));
  return {fd, shown};
}

/// Opens every file of the index, in its order. Tries all of them, then reports all missing ones.
std::vector<Safetensors> opened_shards(const fs::path& folder, const SafetensorsIndex& index) {
  const FolderFd folder_fd(folder);
  std::vector<std::string> missing;
  std::vector<MappedFile> mapped;
  for (const std::string& file : index.files) {
    const int fd = opened_in(folder_fd, folder, file, text(" of ", kSafetensorsIndexFile));
    if (fd >= 0)
      mapped.emplace_back(fd, (folder / file).string());
    else
      missing.push_back(file);
  }
  require<CheckpointError>(missing.empty(), folder.string(), ": ", missing.size(), " of the ", index.files.size(),
                           " files of ", kSafetensorsIndexFile, " are missing: ", shown_list(missing, missing.size()),
                           "\n  fix: fetch them");
  std::vector<Safetensors> files;
  files.reserve(mapped.size());
  for (MappedFile& file : mapped) files.emplace_back(std::move(file));
  return files;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const fs::path& path) : shown_(path.string()) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored) && !fs::exists(path / kSafetensorsFile, ignored) &&
      !fs::is_symlink(path / kSafetensorsFile, ignored)) {
    require<CheckpointError>(fs::exists(path / kSafetensorsIndexFile, ignored), shown_, ": holds neither ",
                             kSafetensorsFile, " nor ", kSafetensorsIndexFile,
                             fs::exists(path / "pytorch_model.bin", ignored)
                                 ? "\n  fix: save the model as safetensors; files of pickles are not read"
                                 : "");
    open_index(path);
    return;
  }
  const Safetensors& file =
      files_.emplace_back(fs::is_directory(path, ignored) ? mapped_in(path, kSafetensorsFile) : MappedFile(path));
  for (std::size_t i = 0; i < file.size(); ++i) names_.push_back(file.entry(i).name);
  std::ranges::sort(names_);
  file_of_.assign(names_.size(), 0);
}

void SafetensorsFolder::open_index(const fs::path& folder) {
  const MappedFile json = mapped_in(folder, kSafetensorsIndexFile);
  const SafetensorsIndex index =
      parse_safetensors_index({reinterpret_cast<const char*>(json.bytes().data()), json.bytes().size()}, json.shown());
  files_ = opened_shards(folder, index);

  std::vector<std::string> lacking;
  std::size_t num_lacking = 0;
  for (const auto& [tensor, number] : index.items) {
    if (const auto found = files_[number].find(tensor)) {
      names_.push_back(found->name);
      file_of_.push_back(number);
    } else if (++num_lacking <= kShownNames) {
      lacking.push_back(text(tensor, " in ", index.files[number]));
    }
  }
  require<CheckpointError>(num_lacking == 0, json.shown(), ": ", num_lacking, " tensors of weight_map are not in the",
                           " file that it names: ", shown_list(lacking, num_lacking));
  for (std::uint32_t number = 0; number < files_.size(); ++number) {
    for (std::size_t i = 0; i < files_[number].size(); ++i) {
      const std::string_view tensor = files_[number].entry(i).name;
      const auto item = std::ranges::lower_bound(index.items, tensor, {}, &SafetensorsIndex::Item::tensor);
      if (item != index.items.end() && item->tensor == tensor && item->file != number)
        throw CheckpointError(text(json.shown(), ": tensor ", shown_name(tensor), " is in ",
                                   shown_name(index.files[number]), " too, but weight_map gives it to ",
                                   shown_name(index.files[item->file])));
    }
  }
}

std::optional<SafetensorsFolder::Found> SafetensorsFolder::find(std::string_view tensor) const {
  const auto it = std::ranges::lower_bound(names_, tensor);
  if (it == names_.end() || *it != tensor) return std::nullopt;
  const Safetensors& file = files_[file_of_[static_cast<std::size_t>(it - names_.begin())]];
  return Found{file, file.at(tensor)};
}

SafetensorsFolder::Found SafetensorsFolder::at(std::string_view tensor) const {
  auto found = find(tensor);
  if (!found)
    throw CheckpointError(text(shown_, ": there is no tensor ", shown_name(tensor), " among its ", names_.size()));
  return *std::move(found);
}

void SafetensorsFolder::read(std::string_view tensor, std::span<const std::int64_t> starts,
                             std::span<const std::int64_t> sizes, std::span<std::byte> out) const {
  const Found found = at(tensor);
  found.file.read(found.entry, starts, sizes, out);
}

}  // namespace trireme::files
