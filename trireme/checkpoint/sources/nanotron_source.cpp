#include "trireme/checkpoint/sources/nanotron_source.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "trireme/base/error.hpp"
#include "trireme/base/owned_fd.hpp"
#include "trireme/checkpoint/sources/hf_source.hpp"
#include "trireme/checkpoint/sources/nanotron_format.hpp"
#include "trireme/config/translate/nanotron_names.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/files/convert_dtype.hpp"
#include "trireme/files/open_beneath.hpp"
#include "trireme/files/safetensors.hpp"
#include "trireme/files/whole_file.hpp"
#include "trireme/layout/box_copy.hpp"
#include "trireme/layout/overlap.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxFiles = 1'000'000;
constexpr std::size_t kMaxSlices = 8192;  // of a tensor, over all ranks: comparing them takes the square

constexpr const char* kReadableFix = "\n  fix: make it readable for this user";
constexpr const char* kForeignFix = "\n  fix: leave in model/ only what nanotron has saved";
constexpr const char* kFetchFix = "\n  fix: fetch the files again from where they came";

struct Shard {
  std::unique_ptr<files::Safetensors> open;  // an entry refers to its file
  files::SafetensorsEntry data;
  std::vector<SlicesPair> pairs{};  // with explicit bounds

  const files::Safetensors& file() const { return *open; }
};
using Shards = std::map<std::string, std::vector<Shard>>;  // by nanotron's names

OwnedFd open_folder(int at, const std::string& name, const fs::path& shown) {
  OwnedFd fd(::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  require<CheckpointError>(bool(fd), shown.string(), ": cannot be opened: ", errno_text(errno), kReadableFix);
  return fd;
}

/// Collects the files below model/. Follows no links: nanotron writes none.
class Collector {
 public:
  void walk(const OwnedFd& folder, const fs::path& shown, const std::string& module, int depth = 0) {
    require<CheckpointError>(depth < kMaxDepth, shown.string(), ": folders are nested more than ", kMaxDepth, " deep",
                             kForeignFix);
    for (const std::string& name : names(folder, shown)) {
      struct stat facts{};
      require<CheckpointError>(::fstatat(folder.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0,
                               (shown / name).string(), ": cannot be read: ", errno_text(errno), kReadableFix);
      require<SecurityError>(!S_ISLNK(facts.st_mode), (shown / name).string(),
                             ": is a link, which may lead anywhere: nanotron writes none\n  fix: put the file there");
      if (S_ISDIR(facts.st_mode))
        walk(open_folder(folder.get(), name, shown / name), shown / name, text(module, name, "."), depth + 1);
      else
        add(folder, name, shown / name, module);
    }
  }
  Shards take() { return std::move(shards_); }

 private:
  static std::vector<std::string> names(const OwnedFd& folder, const fs::path& shown) {
    const int again = ::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* entries = again < 0 ? nullptr : ::fdopendir(again);
    require<CheckpointError>(entries != nullptr, shown.string(), ": cannot be read: ", errno_text(errno), kReadableFix);
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(entries))
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    ::closedir(entries);
    std::ranges::sort(names);
    return names;
  }

  void add(const OwnedFd& folder, const std::string& name, const fs::path& shown, const std::string& module) {
    const std::optional<NanotronFile> parsed = parse_nanotron_file(name);
    require<CheckpointError>(parsed.has_value(), shown.string(),
                             ": is not named as a tensor: model_NAME[_pp-rank-P-of-N_tp-rank-T-of-N].safetensors",
                             kForeignFix);
    require<CheckpointError>(++count_ <= kMaxFiles, shown.string(), ": more than ", kMaxFiles, " files", kForeignFix);
    const int fd = files::open_beneath(folder.get(), name);
    require<CheckpointError>(fd >= 0, shown.string(), ": cannot be opened: ", errno_text(errno), kReadableFix);
    auto file = std::make_unique<files::Safetensors>(files::MappedFile(fd, shown.string()));
    const files::SafetensorsEntry data = file->at("data");
    require<CheckpointError>(files::is_weight_dtype(data.dtype), shown.string(), ": data is of dtype ",
                             files::name(data.dtype),
                             ": weights must be F64, F32, F16 or BF16\n  fix: save them in one of these");
    Shard shard{.open = std::move(file), .data = data};
    const Slices all = slices_of(whole_box(data.shape));
    shard.pairs = pairs_of(shard, parsed->is_shard).value_or(std::vector{SlicesPair{all, all}});
    shards_[module + parsed->parameter].push_back(std::move(shard));
  }

  /// Of the metadata; nullopt if a tensor that is not sharded says nothing about slices.
  static std::optional<std::vector<SlicesPair>> pairs_of(const Shard& shard, bool needed) {
    const auto& metadata = shard.file().metadata();
    const auto pairs = metadata.find("local_global_slices_pairs"), shape = metadata.find("unsharded_shape");
    if (!needed && pairs == metadata.end()) return std::nullopt;
    require<CheckpointError>(pairs != metadata.end() && shape != metadata.end(), shard.file().shown(),
                             ": is a shard, but its metadata lacks local_global_slices_pairs or unsharded_shape",
                             kFetchFix);
    try {
      const ShardedInfo info = validated({.global_ranks = {},
                                          .local_global_slices_pairs = parse_slices_pairs(pairs->second),
                                          .unsharded_shape = parse_tuple(shape->second)},
                                         shard.data.shape);
      return info.local_global_slices_pairs;
    } catch (const CheckpointError& e) {
      throw CheckpointError(text(shard.file().shown(), ": ", e.what(), kFetchFix));
    }
  }

  Shards shards_;
  std::size_t count_ = 0;
};

/// Why the shards are not exactly one tensor of this shape; empty if they are.
std::string fault_of(const std::vector<Shard>& shards, const Shape& shape) {
  std::vector<Box> boxes;
  std::vector<const Shard*> holders;  // of each box
  std::int64_t elements = 0;
  for (const Shard& shard : shards) {
    if (shard.data.dtype != shards[0].data.dtype)
      return text(shard.file().shown(), " is of dtype ", files::name(shard.data.dtype), ", others of ",
                  files::name(shards[0].data.dtype));
    for (const SlicesPair& pair : shard.pairs) {
      const Box box = box_of(pair.global_slices);
      bool inside = box.size() == shape.size();
      for (std::size_t d = 0; inside && d < box.size(); ++d) inside = box[d].end <= shape[d];
      if (!inside)
        return text(shard.file().shown(), " holds ", str(box), ", outside of a tensor of shape ", tuple_text(shape));
      std::int64_t size = 1;
      for (const Range& range : box) size *= range.size();
      elements += size;
      if (size > 0) {
        boxes.push_back(box);
        holders.push_back(&shard);
      }
      if (boxes.size() > kMaxSlices)
        return text(shard.file().shown(), ": a tensor of more than ", kMaxSlices, " slices");
    }
  }
  if (const auto two = overlapping(boxes))
    return text(holders[two->first]->file().shown(), " and ", holders[two->second]->file().shown(),
                " both hold elements of ", str(boxes[two->first]), " and ", str(boxes[two->second]));
  if (elements == numel(shape)) return "";
  return text(shards[0].file().shown(), " and its other shards hold ", elements, " of the ", numel(shape),
              " elements of a tensor of shape ", tuple_text(shape));
}

class NanotronSource final : public ModelSource {
 public:
  NanotronSource(std::string shown, ModelConfig model, FilesBeside beside, Shards shards, std::string note)
      : shown_(std::move(shown)),
        model_(std::move(model)),
        beside_(std::move(beside)),
        shards_(std::move(shards)),
        note_(std::move(note)) {
    std::vector<std::string> wrong;
    for (const Parameter& parameter : all_parameters(model_)) {
      const auto& [name, shape] = std::tie(parameter.name, parameter.spec.shape);
      const std::string theirs = config::nanotron_name(name);
      const auto found = shards_.find(theirs);
      if (found == shards_.end()) {
        wrong.push_back(theirs + " is missing");
        continue;
      }
      if (std::string fault = fault_of(found->second, shape); !fault.empty())
        wrong.push_back(std::move(fault));
      else
        tensors_.push_back({name, found->second[0].data.dtype, shape});
      by_name_.emplace(std::move(name), &found->second);
    }
    for (const auto& [theirs, all] : shards_)
      if (std::ranges::none_of(by_name_, [&](const auto& each) { return each.second == &all; }))
        wrong.push_back(text(theirs, " has no place in a ", model_.model_type, " model of this config"));
    require_fit(shown_, wrong, "the model_config.json that was saved with these weights");
  }

  const std::string& shown() const override { return shown_; }
  const ModelConfig& model() const override { return model_; }
  const std::vector<ModelTensor>& tensors() const override { return tensors_; }
  const FilesBeside& files() const override { return beside_; }
  std::string note() const override { return note_; }

  void read(const ModelTensor& tensor, const Box& box, std::span<std::byte> out) const override {
    const std::size_t element = static_cast<std::size_t>(files::bits(tensor.dtype)) / 8;
    Box local = box;
    for (Range& range : local) range = {0, range.size()};
    const SlicesPair wanted{slices_of(local), slices_of(box)};
    std::vector<std::byte> bytes;
    for (const Shard& shard : *by_name_.at(tensor.name))
      for (const SlicesPair& pair : shard.pairs) {
        const std::optional<Overlap> common = intersect(pair, wanted);
        if (!common) continue;
        std::vector<std::int64_t> starts, sizes;
        for (const Range& range : common->from_local) {
          starts.push_back(range.begin);
          sizes.push_back(range.size());
        }
        bytes.resize(bytes_of_box(common->from_local, tensor.dtype));
        shard.file().read(shard.data, starts, sizes, bytes);
        copy_box(bytes, common->global, out, box, common->global, element);
      }
  }

 private:
  std::string shown_;
  ModelConfig model_;
  FilesBeside beside_;
  Shards shards_;
  std::string note_;
  std::map<std::string, const std::vector<Shard>*> by_name_{};
  std::vector<ModelTensor> tensors_{};
};

/// A number, and nothing that leads elsewhere.
fs::path latest_checkpoint(const fs::path& path) {
  std::string step = files::whole_file(path / "latest.txt", 64, "latest.txt of a nanotron checkpoint");
  while (!step.empty() && (step.back() == '\n' || step.back() == ' ')) step.pop_back();
  require<CheckpointError>(
      !step.empty() && step.size() < 19 && step.find_first_not_of("0123456789") == std::string::npos,
      (path / "latest.txt").string(), ": must hold the number of a step\n  fix: name the folder of the step itself");
  return path / step;
}

}  // namespace

std::unique_ptr<ModelSource> open_nanotron_source(const fs::path& path) {
  std::error_code failed;
  const fs::path folder = fs::exists(path / "latest.txt", failed) ? latest_checkpoint(path) : path;
  std::string note;
  FilesBeside beside = files_beside(folder, note, {"checkpoint_metadata.json", "config.yaml", "latest.txt"});
  Collector collector;
  const OwnedFd root(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  require<CheckpointError>(bool(root), folder.string(), ": cannot be opened: ", errno_text(errno), kReadableFix);
  struct stat facts{};
  const bool there = ::fstatat(root.get(), "model", &facts, AT_SYMLINK_NOFOLLOW) == 0;
  require<CheckpointError>(there, folder.string(), ": has no folder model/: is it a nanotron checkpoint?",
                           "\n  fix: name a folder that nanotron has saved");
  require<SecurityError>(!S_ISLNK(facts.st_mode), (folder / "model").string(), ": is a link, which may lead anywhere",
                         "\n  fix: put the folder itself there");
  collector.walk(open_folder(root.get(), "model", folder / "model"), folder / "model", "");
  Shards shards = collector.take();
  require<CheckpointError>(!shards.empty(), (folder / "model").string(), ": is empty", kFetchFix);

  const auto theirs = beside.find("model_config.json");
  if (!beside.contains("config.json")) {
    require<CheckpointError>(theirs != beside.end(), folder.string(), ": has neither model_config.json nor config.json",
                             "\n  fix: put the model_config.json there that nanotron has saved with the weights");
    const auto dtype = shards.begin()->second[0].data.dtype;
    beside["config.json"] =
        config_json_of_nanotron((folder / "model_config.json").string(), theirs->second, files::torch_name(dtype));
  }
  beside.erase("model_config.json");
  ModelConfig model = model_of_config_json((folder / "config.json").string(), beside.at("config.json"));
  check_for_nanotron(model, 1);
  return std::make_unique<NanotronSource>(folder.string(), std::move(model), std::move(beside), std::move(shards),
                                          std::move(note));
}

}  // namespace trireme::checkpoint
