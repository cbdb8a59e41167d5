#include "trireme/checkpoint/format/manifest_parts.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/file_operations.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme::checkpoint {
namespace {

void add_index(std::vector<Range>& ranges, std::int64_t index) {
  if (!ranges.empty() && ranges.back().end > index) return;
  if (!ranges.empty() && ranges.back().end == index)
    ++ranges.back().end;
  else
    ranges.push_back({index, index + 1});
}

}  // namespace

std::string rank_part_name(int rank) {
  return std::filesystem::path(rank_file_name(rank)).replace_extension(".json").string();
}

void add_file(Manifest& part, const Manifest& file) {
  const std::size_t first = part.files.size();
  part.files.insert(part.files.end(), file.files.begin(), file.files.end());
  for (StoredTensor tensor : file.tensors) {
    for (StoredSlice& slice : tensor.slices) slice.file += first;
    part.tensors.push_back(std::move(tensor));
  }
}

void write_part(files::Fs& fs, const SaveTarget& target, int rank, Manifest part) {
  part.id = target.id;
  part.training.step = target.step;
  // Complete, and on disk, when it appears: whoever waits for the parts looks only at their names.
  const std::filesystem::path path = target.temporary() / rank_part_name(rank), unnamed = path.string() + ".new";
  write_new_file(fs, unnamed, to_json(part));
  check_done(fs.rename(unnamed, path), path, "be renamed to");
}

int count_parts(const SaveTarget& target) {
  std::vector<std::string> names;
  list_names(target.temporary(), names);
  return static_cast<int>(std::ranges::count_if(
      names, [](const std::string& name) { return is_rank_file(name) && name.ends_with(".json"); }));
}

void PartCollector::add_tensor(const StoredTensor& of_part, std::int64_t part) {
  const StoredTensor empty{.name = of_part.name, .kind = of_part.kind, .dtype = of_part.dtype, .shape = of_part.shape};
  auto& [tensor, bytes] = tensors_.try_emplace({of_part.name, of_part.kind}, Collected{empty}).first->second;
  require(tensor.shape == of_part.shape && tensor.dtype == of_part.dtype, of_part.name, " ", of_part.kind, ": ",
          tuple_text(of_part.shape), " ", files::name(of_part.dtype), " on one rank, ", tuple_text(tensor.shape), " ",
          files::name(tensor.dtype), " on another");
  for (const StoredSlice& slice : of_part.slices) bytes += bytes_of(tensor, slice.box);
  add_index(tensor.parts, part);
}

void PartCollector::add(const StoredFile& file, const Manifest& part) {
  files_.insert(files_.end(), part.files.begin(), part.files.end());
  parts_.push_back(files_.size());
  files_.push_back(file);
  for (const StoredTensor& tensor : part.tensors) add_tensor(tensor, static_cast<std::int64_t>(parts_.size()) - 1);
}

void PartCollector::finish(Manifest& manifest) && {
  manifest.files = std::move(files_);
  manifest.parts = std::move(parts_);
  for (auto& [key, collected] : tensors_) {
    auto& [tensor, bytes] = collected;
    require(bytes == bytes_of(tensor), tensor.name, " ", tensor.kind, ": the ranks wrote ", bytes, " of ",
            bytes_of(tensor), " bytes");
    manifest.tensors.push_back(std::move(tensor));
  }
}

void collect_parts(Manifest& manifest, const SaveTarget& target, int world) {
  PartCollector parts;
  for (int rank = 0; rank < world; ++rank) {
    const std::string name = rank_part_name(rank);
    const std::filesystem::path path = target.temporary() / name;
    std::string json;
    try {
      json = files::whole_file(path, kMaxManifestBytes, "a part of a manifest");
    } catch (const DataError& e) {
      throw CheckpointError(text("the save of step ", target.step, " is not complete: ", e.what(),
                                 exists_at_all(path) ? "" : "\n  fix: save to a file system that all hosts share"));
    }
    const Manifest part = parse_part(json, path.string());
    require<CheckpointError>(part.id == target.id, path.string(), ": is of another save (", part.id, ", not ",
                             target.id, ")");
    parts.add({.name = name,
               .bytes = json.size(),
               .header_bytes = json.size(),
               .header_hash = files::xxh3(std::as_bytes(std::span(json)))},
              part);
  }
  std::move(parts).finish(manifest);
}

}  // namespace trireme::checkpoint
