#include "trireme/checkpoint/sources/model_source.hpp"

#include <algorithm>
#include <cerrno>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "trireme/base/error.hpp"
#include "trireme/base/listed.hpp"
#include "trireme/base/owned_fd.hpp"
#include "trireme/base/with_fix.hpp"
#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/checkpoint/sources/hf_source.hpp"
#include "trireme/checkpoint/sources/nanotron_source.hpp"
#include "trireme/checkpoint/sources/own_source.hpp"
#include "trireme/files/mapped_file.hpp"
#include "trireme/files/open_beneath.hpp"
#include "trireme/files/safetensors_index.hpp"
#include "trireme/files/weights_files.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr off_t kMaxBytesBeside = 100'000'000;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed))
    names.push_back(entry.path().filename().string());
  require<CheckpointError>(!failed, folder.string(), ": cannot be read: ", failed.message(),
                           "\n  fix: make it readable for this user");
  std::ranges::sort(names);
  return names;
}

}  // namespace

FilesBeside files_beside(const fs::path& folder, std::string& note, const std::vector<std::string>& also_not) {
  FilesBeside found;
  const OwnedFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  require<CheckpointError>(bool(fd), folder.string(), ": cannot be opened: ", errno_text(errno),
                           "\n  fix: make it readable for this user");
  for (const std::string& name : names_in(folder)) {
    const bool left_out = name.starts_with('.') || files::is_of_weights(name) || !files::is_base_name(name) ||
                          std::ranges::find(also_not, name) != also_not.end();
    struct stat facts{};
    if (left_out || ::fstatat(fd.get(), name.c_str(), &facts, 0) != 0 || !S_ISREG(facts.st_mode)) continue;
    if (facts.st_size > kMaxBytesBeside) {
      note += text(note.empty() ? "" : "; ", (folder / name).string(), " is larger than 100 MB and not copied");
      continue;
    }
    const int file = files::open_in_folder(fd.get(), name);
    require<SecurityError>(file >= 0 || errno != ELOOP, (folder / name).string(),
                           ": is a link that leads out of the folder\n  fix: put the file itself there, or remove it");
    const files::MappedFile mapped(file, (folder / name).string());
    const auto bytes = mapped.bytes();
    found.emplace(name, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  return found;
}

namespace {

std::unique_ptr<ModelSource> open_any(const fs::path& path) {
  std::error_code failed;
  require<CheckpointError>(fs::exists(path, failed), path.string(), ": there is no such folder",
                           "\n  fix: name the folder of a model or of a checkpoint");
  // First: the last checkpoint of a run is a Hugging Face folder too, whose weights are rounded.
  if (is_own_checkpoint(path)) return open_own_source(path);
  const auto has = [&](const char* name) { return fs::exists(fs::symlink_status(path / name, failed)); };
  if (has(files::kSafetensorsFile) || has(files::kSafetensorsIndexFile)) return open_hf_source(path);
  if (has("latest.txt") || has("model_config.json") || has("model")) return open_nanotron_source(path);
  if (step_in_name(path.filename().string())) return open_own_source(path);  // says what is wrong with it
  throw CheckpointError(text(path.string(), ": neither a Hugging Face folder (", files::kSafetensorsFile, " or ",
                             files::kSafetensorsIndexFile, ") nor a checkpoint of a run (", kManifestName,
                             ") or of nanotron (model/, model_config.json)\n  fix: name one of these"));
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const fs::path& path) {
  return with_fix("a folder as transformers, nanotron or `trireme train` has written it, whole: copy it again",
                  [&] { return open_any(path); });
}

void require_fit(const std::string& shown, const std::vector<std::string>& wrong, const std::string& fix) {
  require<CheckpointError>(wrong.empty(), shown, ": ", wrong.size(), wrong.size() == 1 ? " tensor does" : " tensors do",
                           " not fit the model", listed(wrong), "\n  fix: ", fix);
}

Box whole_box(const Shape& shape) {
  Box box;
  for (const std::int64_t size : shape) box.push_back({0, size});
  return box;
}

std::size_t bytes_of_box(const Box& box, files::SafetensorsDtype dtype) {
  std::size_t bytes = static_cast<std::size_t>(files::bits(dtype)) / 8;
  for (const Range& range : box) bytes *= static_cast<std::size_t>(range.size());
  return bytes;
}

}  // namespace trireme::checkpoint
