#include "trireme/files/safetensors_folder_write.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/temporary_name.hpp"
#include "trireme/files/open_beneath.hpp"
#include "trireme/files/safetensors_index.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;

std::string shard_name(std::size_t number, std::size_t count) {
  char digits[64];
  std::snprintf(digits, sizeof digits, "model-%05zu-of-%05zu.safetensors", number, count);
  return digits;
}

/// Strips the slash of "out/" and resolves a symlink to a folder: the temporary folder must be next to the real one.
fs::path resolved(const fs::path& folder) {
  std::error_code failed;
  fs::path whole = fs::absolute(folder, failed);
  if (!failed) whole = fs::weakly_canonical(whole, failed);
  if (failed) return folder;  // the error is reported on first use
  return whole.has_filename() ? whole : whole.parent_path();
}

[[noreturn]] void throw_not_empty(const std::string& shown) {
  throw CheckpointError(text(shown, ": already exists and is not empty: a checkpoint is never overwritten",
                             "\n  fix: write to another folder, or remove this one"));
}

}  // namespace

std::vector<SafetensorsShard> safetensors_shards(std::span<const SafetensorsTensor> tensors,
                                                 std::uint64_t max_shard_bytes) {
  std::vector<SafetensorsShard> shards(1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = bytes_of(tensors[i]);
    const bool is_first = shards.back().begin == i;
    if (!is_first && (bytes > max_shard_bytes || shards.back().bytes > max_shard_bytes - bytes))
      shards.push_back({"", i, i, 0});
    shards.back().end = i + 1;
    shards.back().bytes += bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].file = shards.size() == 1 ? kSafetensorsFile : shard_name(i + 1, shards.size());
  return shards;
}

SafetensorsFolderWriter::SafetensorsFolderWriter(const fs::path& folder, std::vector<SafetensorsTensor> tensors,
                                                 std::uint64_t max_shard_bytes)
    : folder_(resolved(folder)),
      shown_(folder.string()),
      tensors_(std::move(tensors)),
      shards_(safetensors_shards(tensors_, max_shard_bytes)) {
  require<CheckpointError>(!folder.empty(), "a model cannot be written to a folder without a name");
  for (const SafetensorsShard& shard : shards_) total_bytes_ += shard.bytes;
  check_tensors();
  try {
    guarded([&] {
      make_workplace();
      begin_shard();
    });
  } catch (...) {  // the destructor does not run
    discard();
    throw;
  }
}

/// Checks all tensors up front: an invalid one in the last shard would be found only after hours.
void SafetensorsFolderWriter::check_tensors() const {
  for (const SafetensorsShard& shard : shards_)
    safetensors_header(std::span(tensors_).subspan(shard.begin, shard.end - shard.begin), pytorch_metadata(),
                       (fs::path(shown_) / shard.file).string());
  if (shards_.size() == 1) return;
  try {
    parse_safetensors_index(index_json(),
                            (fs::path(shown_) / kSafetensorsIndexFile).string());  // also finds names in two shards
  } catch (const CheckpointError& error) {
    throw InternalError(text("an index that could not be read again: ", error.what()));
  }
}

SafetensorsFolderWriter::~SafetensorsFolderWriter() { discard(); }

/// Rethrows errors of the lower layers as an error of this folder, and removes everything written so far.
template <class Body>
void SafetensorsFolderWriter::guarded(const Body& body) {
  const auto fail = [&](const std::string& what) {
    discard();
    throw CheckpointError(text(shown_, ": a model of ", thousands(static_cast<std::int64_t>(total_bytes_)),
                               " bytes cannot be written here\n  ", what,
                               what.find("\n  fix: ") == std::string::npos ? "\n  fix: write to another folder" : ""));
  };
  try {
    body();
  } catch (const DataError& error) {
    fail(error.what());
  } catch (const ConfigError& error) {
    fail(error.what());
  } catch (const CheckpointError&) {
    discard();
    throw;
  }
}

void SafetensorsFolderWriter::make_workplace() {
  std::error_code failed;
  const fs::file_status status = fs::status(folder_, failed);
  require<DataError>(fs::exists(status) || !fs::is_symlink(folder_), "it is a link to a path that does not exist");
  staged_ = std::make_unique<StagedFiles>();
  if (fs::exists(status)) {
    require<DataError>(fs::is_directory(status), "it is not a folder");
    remove_leftovers_in(folder_);
    check_empty();
    workplace_ = folder_;
    return;
  }
  for (fs::path each = folder_.parent_path(); !each.empty() && !fs::exists(each, failed); each = each.parent_path())
    made_.push_back(each);
  for (auto each = made_.rbegin(); each != made_.rend(); ++each)
    require<DataError>(::mkdir(each->c_str(), 0777) == 0 || errno == EEXIST, each->string(),
                       ": cannot be made: ", errno_text(errno));
  remove_leftovers(folder_);
  for (int number = 0; workplace_.empty(); ++number) {
    const fs::path temporary = temporary_name(folder_, number);
    if (::mkdir(temporary.c_str(), 0777) == 0) workplace_ = temporary;
    require<DataError>(!workplace_.empty() || errno == EEXIST, temporary.string(),
                       ": cannot be made: ", errno_text(errno));
  }
}

/// Ignores this object's own temporary files.
void SafetensorsFolderWriter::check_empty() const {
  std::error_code failed;
  for (auto entry = fs::directory_iterator(folder_, failed); entry != fs::directory_iterator(); entry.increment(failed))
    if (!is_own_temporary(entry->path().filename().string())) throw_not_empty(shown_);
  require<DataError>(!failed, "its files cannot be listed: ", failed.message());
}

StagedFile& SafetensorsFolderWriter::stage(const std::string& name) {
  return staged_->add(workplace_ / name, (fs::path(shown_) / name).string());
}

void SafetensorsFolderWriter::begin_shard() {
  const SafetensorsShard& shard = shards_[shard_];
  const auto tensors = std::span(tensors_).subspan(shard.begin, shard.end - shard.begin);
  writer_ = std::make_unique<SafetensorsWriter>(stage(shard.file), std::vector(tensors.begin(), tensors.end()));
}

void SafetensorsFolderWriter::end_shard() {
  writer_->finish();
  writer_.reset();
  ++shard_;
}

void SafetensorsFolderWriter::append(std::string_view tensor, std::span<const std::byte> bytes) {
  require(staged_ != nullptr, shown_, ": bytes of tensor ", shown_name(tensor), " come after the end");
  guarded([&] {
    // Skips only to tensors of this shard or the first of the next; the writers reject all others.
    while (tensor_ < tensors_.size() && tensors_[tensor_].name != tensor) ++tensor_;
    require(tensor_ < tensors_.size(), shown_, ": bytes of tensor ", shown_name(tensor),
            " come, which is not in the list, or its turn is over");
    while (tensor_ >= shards_[shard_].end) {
      end_shard();
      begin_shard();
    }
    writer_->append(tensor, bytes);
  });
}

void SafetensorsFolderWriter::add_file(const std::string& name, std::string contents) {
  require(is_base_name(name), shown_, ": ", shown_name(name), " is not the name of a file");
  const bool taken =
      name == kSafetensorsIndexFile || std::ranges::find(shards_, name, &SafetensorsShard::file) != shards_.end() ||
      std::ranges::find(small_files_, name, &std::pair<std::string, std::string>::first) != small_files_.end();
  require(!taken, shown_, ": there is a file ", shown_name(name), " already");
  small_files_.emplace_back(name, std::move(contents));
}

std::string SafetensorsFolderWriter::index_json() const {
  std::string out = text("{\n  \"metadata\": {\n    \"total_size\": ", total_bytes_, "\n  },\n  \"weight_map\": {");
  const char* gap = "\n";
  for (const SafetensorsShard& shard : shards_) {
    for (std::size_t i = shard.begin; i < shard.end; ++i)
      out += text(std::exchange(gap, ",\n"), "    ", json_string(tensors_[i].name), ": ", json_string(shard.file));
  }
  return out + "\n  }\n}\n";
}

void SafetensorsFolderWriter::publish(const std::function<void()>& before_step) {
  require(staged_ != nullptr, shown_, ": is published, or was given up");
  guarded([&] {
    while (shard_ < shards_.size()) {
      if (writer_ == nullptr) begin_shard();
      end_shard();
    }
    if (shards_.size() > 1) stage(kSafetensorsIndexFile).append(index_json());
    for (const auto& [name, contents] : small_files_) stage(name).append(contents);
    staged_->settle();
    if (workplace_ == folder_) check_empty();
    is_renaming_ = true;
    staged_->publish(before_step);
    if (workplace_ != folder_) {
      if (before_step) before_step();
      move_into_place();
    }
    workplace_.clear();
    made_.clear();
    staged_.reset();
  });
}

void SafetensorsFolderWriter::move_into_place() {
  // Replaces an empty folder that was created meanwhile; fails for one with files.
  if (::rename(workplace_.c_str(), folder_.c_str()) != 0) {
    if (errno == ENOTEMPTY || errno == EEXIST) throw_not_empty(shown_);
    throw DataError(text("cannot be renamed to from ", workplace_.string(), ": ", errno_text(errno)));
  }
  settle_folder(folder_.parent_path());
  for (const fs::path& each : made_) settle_folder(each.parent_path());
}

void SafetensorsFolderWriter::discard() noexcept {
  writer_.reset();
  staged_.reset();  // removes its files
  std::error_code ignored;
  if (!workplace_.empty() && workplace_ != folder_) {
    fs::remove_all(workplace_, ignored);
  } else if (!workplace_.empty() && is_renaming_) {  // the folder was empty, so files with these names are ours
    for (const SafetensorsShard& shard : shards_) fs::remove(folder_ / shard.file, ignored);
    for (const auto& [name, contents] : small_files_) fs::remove(folder_ / name, ignored);
    fs::remove(folder_ / kSafetensorsIndexFile, ignored);
  }
  workplace_.clear();
  for (const fs::path& each : made_) fs::remove(each, ignored);  // fails if others have put something there
  made_.clear();
}

}  // namespace trireme::files
