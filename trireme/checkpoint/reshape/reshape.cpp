#include "trireme/checkpoint/reshape/reshape.hpp"

#include <algorithm>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/manifest_parts.hpp"
#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/checkpoint/reshape/rank_slices.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/checkpoint/sources/nanotron_format.hpp"
#include "trireme/checkpoint/sources/stored_config.hpp"
#include "trireme/config/schema/fields.hpp"

namespace trireme::checkpoint {
namespace {

namespace stdfs = std::filesystem;

constexpr std::size_t kWriteBytes = std::size_t{16} << 20;

/// Whether it is there, as an empty folder.
bool is_usable(const stdfs::path& out, std::int64_t step) {
  require<ConfigError>(!step_in_name(out.filename().string()), "-o ", out.string(), ": the checkpoint would be ",
                       out.string(), "/", step_name(step), "\n  fix: name the folder for ", step_name(step),
                       " to be in, such as reshaped");
  std::error_code error;
  const stdfs::path above = stdfs::absolute(out).parent_path();
  require<ConfigError>(stdfs::is_directory(above, error), "-o ", out.string(), ": there is no folder ", above.string(),
                       "\n  fix: create it first");
  const stdfs::file_status status = stdfs::symlink_status(out, error);
  const bool is_there = stdfs::exists(status);
  require<ConfigError>(!is_there || (stdfs::is_directory(status) && stdfs::is_empty(out, error)), "-o ", out.string(),
                       ": already exists and is not an empty folder: nothing is overwritten",
                       "\n  fix: write to another folder, or remove this one");
  return is_there;
}

/// The manifest without files and tensors.
Manifest new_manifest(const Manifest& old, Config config, const Grid& grid, const ReshapeOptions& options) {
  Manifest out{.id = hex_digits(random_bytes(16)),
               .program = options.program,
               .time = options.time,
               .layout = old.layout,
               .config = old.config,
               .training = old.training};
  for (const auto& [axis, degree] : grid.axes()) out.layout[name(axis)] = degree;
  out.layout.erase(name(Axis::ep));
  if (config.parallelism.ep > 1) out.layout[name(Axis::ep)] = config.parallelism.ep;
  out.layout["world"] = grid.size();
  out.layout["zero"] = config.parallelism.zero;
  for (const config::Field& field : config::fields(config))
    if (field.key.starts_with("parallelism.")) out.config[field.key] = config::toml_text(field.value);
  out.config["checkpoint.format"] = "\"trireme\"";
  return out;
}

/// Writes the files of all ranks, one after the other.
class Reshaper {
 public:
  Reshaper(const Reader& source, const RankSlices& slices, const SaveTarget& target, const ReshapeOptions& options,
           files::Fs& fs)
      : source_(source), slices_(slices), target_(target), options_(options), fs_(fs) {
    for (const StoredTensor& tensor : source.manifest().tensors)
      if (tensor.kind != kModel && (!is_of_rank(tensor.kind) || (tensor.kind == kRandom && slices.keeps_random())))
        of_ += bytes_of(tensor);
  }

  void write_ranks() {
    for (int rank = 0; rank < slices_.world(); ++rank) write_rank(rank);
  }

 private:
  void write_rank(int rank) {
    const std::vector<PlannedSlice> plan = slices_.of_rank(rank);
    const std::string header = rank_file_header(plan, target_.id);
    ShardWriter writer(fs_, pool_, target_, rank_file_name(rank));
    writer.append(std::as_bytes(std::span(header)));
    for (const PlannedSlice& slice : plan) {
      if (writer.has_failed()) break;
      const StoredTensor& tensor = *find(source_.manifest(), slice.name, slice.kind);
      buffer_.resize(static_cast<std::size_t>(bytes_of(tensor, slice.box)));
      source_.read(tensor, slice.box, buffer_);
      writer.append(slice, buffer_);
      options_.progress(done_ += buffer_.size(), of_);
    }
    writer.end();
    write_part(fs_, target_, rank, writer.finish());
  }

  const Reader& source_;
  const RankSlices& slices_;
  const SaveTarget& target_;
  const ReshapeOptions& options_;
  files::Fs& fs_;
  BlockPool pool_{kWriteBytes};
  std::vector<std::byte> buffer_;
  std::uint64_t done_ = 0, of_ = 0;
};

/// Not those of nanotron's layout: they name ranks that there are no more.
SmallFiles small_files_of(const Reader& source) {
  SmallFiles out;
  for (const StoredFile& file : source.manifest().files)
    if (!is_rank_file(file.name) && !is_of_nanotron_layout(file.name))
      out.emplace_back(file.name, source.small_file(file.name));
  return out;
}

/// Without the weights that nanotron's layout stores a second time.
Manifest in_own_layout(Manifest manifest) {
  std::erase_if(manifest.tensors, [](const StoredTensor& tensor) { return tensor.kind == kModel; });
  return manifest;
}

}  // namespace

Reshaped reshape(const Reader& source, const stdfs::path& out, const ReshapeOptions& options) {
  const Manifest old = in_own_layout(source.manifest());
  config::LoadedConfig loaded = stored_config(old, source.shown());
  apply(options.to, loaded);
  const RankSlices slices(old, loaded.config.model, loaded.config.parallelism);
  const stdfs::path folder = out.has_filename() ? out : out.parent_path();
  const bool was_there = is_usable(folder, old.training.step);

  files::Fs& fs = options.fs != nullptr ? *options.fs : files::real_fs();
  Manifest manifest = new_manifest(old, loaded.config, slices.grid(), options);
  const SaveTarget target{.folder = folder, .step = old.training.step, .id = manifest.id};
  try {
    Reshaper(source, slices, target, options, fs).write_ranks();
    collect_parts(manifest, target, slices.world());
    commit(fs, target, manifest, small_files_of(source));
  } catch (...) {
    abandon(fs, target);
    if (!was_there) fs.remove_folder(folder);  // which is empty, or not ours
    throw;
  }
  const bool had_random = std::ranges::any_of(old.tensors, [](const auto& t) { return t.kind == kRandom; });
  return {
      .path = target.final(), .manifest = std::move(manifest), .dropped_random = had_random && !slices.keeps_random()};
}

}  // namespace trireme::checkpoint
