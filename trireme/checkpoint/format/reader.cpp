#include "trireme/checkpoint/format/reader.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <numeric>
#include <set>

#include <fcntl.h>
#include <sys/stat.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/read_errors.hpp"
#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/files/little_endian.hpp"
#include "trireme/files/open_beneath.hpp"
#include "trireme/files/safetensors_header.hpp"
#include "trireme/files/shown_name.hpp"
#include "trireme/layout/box_copy.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;

OwnedFd opened_folder(const std::filesystem::path& checkpoint, const std::string& shown) {
  return as_checkpoint_error([&] {
    struct stat facts{};
    const int error = ::lstat(checkpoint.c_str(), &facts) == 0 ? 0 : errno;
    require<CheckpointError>(error != ENOENT && error != ENOTDIR, shown, ": ", errno_text(error),
                             "\n  fix: name the folder of a checkpoint");
    if (error != 0) throw_not_opened(shown, error);
    require<SecurityError>(!S_ISLNK(facts.st_mode), shown,
                           " is a symlink, which may lead anywhere\n  fix: name the folder", " that it leads to");
    require<CheckpointError>(S_ISDIR(facts.st_mode), shown, " is not a folder\n  fix: name the folder of a checkpoint");
    OwnedFd fd(::open(checkpoint.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) throw_not_opened(shown, errno);
    return fd;
  });
}

/// A folder's path, also of one that ends with a slash.
std::filesystem::path without_slash(const std::filesystem::path& checkpoint) {
  return checkpoint.has_filename() ? checkpoint : checkpoint.parent_path();
}

Manifest read_manifest(int folder, const std::string& folder_shown) {
  const std::string shown = text(folder_shown, "/", kManifestName);
  return as_checkpoint_error([&] {
    const int fd = files::open_beneath(folder, kManifestName);
    const int error = errno;
    require<CheckpointError>(fd >= 0 || error != ENOENT, folder_shown, " is not a checkpoint: it has no ",
                             kManifestName,
                             ", which is written last\n  fix: use an earlier checkpoint; this one was not completed");
    if (fd < 0) throw_not_opened(shown, error);
    const files::RandomReader file(fd, shown);
    require<CheckpointError>(file.size() <= kMaxManifestBytes, shown, ": ", file.size(), " bytes; at most ",
                             kMaxManifestBytes, kDamagedFix);
    std::string json(static_cast<std::size_t>(file.size()), '\0');
    file.read(0, std::as_writable_bytes(std::span(json)));
    return parse_manifest(json, shown);
  });
}

/// The hash of the ranges, one after the other; nullopt if they reach beyond the file.
template <class Ranges>
std::optional<files::Xxh3> hash_of(const files::RandomReader& file, const Ranges& ranges) {
  std::vector<std::byte> buffer;
  files::Xxh3Stream stream;
  for (const auto& [begin, end] : ranges) {
    if (end > file.size()) return std::nullopt;
    for (std::uint64_t at = begin; at < end; at += buffer.size()) {
      buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kReadBytes, end - at)));
      file.read(at, buffer);
      stream.add(buffer);
    }
  }
  return stream.result();
}

/// The checkpoint that the header of a safetensors file names; "" if it has none, or is damaged.
std::string id_in(const files::RandomReader& file) {
  try {
    std::uint64_t length = 0;
    if (file.size() < sizeof length) return "";
    file.read_numbers(0, std::span(&length, 1));
    if (length > files::kMaxHeaderBytes || length > file.size() - sizeof length) return "";
    std::string header(static_cast<std::size_t>(length), '\0');
    file.read(sizeof length, std::as_writable_bytes(std::span(header)));
    const files::SafetensorsHeader parsed(header, file.size() - sizeof length - length, file.shown());
    const auto id = parsed.metadata().find("checkpoint");
    return id == parsed.metadata().end() ? "" : id->second;
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string rank_file_name(int rank) {
  char digits[16];
  std::snprintf(digits, sizeof digits, "%05d", rank);
  return text("rank-", digits, ".safetensors");
}

bool is_rank_file(std::string_view name) {
  constexpr std::string_view kBegin = "rank-";
  if (!name.starts_with(kBegin)) return false;
  const std::string_view rest = name.substr(kBegin.size());
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  return digits > 0 && (rest.substr(digits) == ".safetensors" || rest.substr(digits) == ".json");
}

struct Reader::Faults {
  std::vector<std::string> lines{};
  bool security = false, storage = false, permission = false;

  template <class... Parts>
  void add(const Parts&... parts) {
    lines.push_back(text(parts...));
  }
};

Manifest manifest_in(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = without_slash(checkpoint);
  return read_manifest(opened_folder(path, path.string()).get(), path.string());
}

Reader::Reader(const std::filesystem::path& checkpoint, ReadProgress progress) : progress_(std::move(progress)) {
  Faults faults;
  check_all(checkpoint, faults);
  throw_faults(faults);
}

Reader::Reader(const std::filesystem::path& checkpoint, std::vector<std::string>& faults) {
  Faults found;
  check_all(checkpoint, found);
  faults.insert(faults.end(), found.lines.begin(), found.lines.end());
}

Reader::Reader(const std::filesystem::path& checkpoint, Manifest manifest, const Wanted& wanted, ReadProgress progress)
    : progress_(std::move(progress)) {
  open_folder(checkpoint);
  use(std::move(manifest));
  Faults faults;
  std::vector<const StoredTensor*> needed;
  std::set<std::int64_t> parts;
  for (const StoredTensor& tensor : manifest_.tensors) {
    if (!wanted(tensor.name, tensor.kind)) continue;
    needed.push_back(&tensor);
    for (const Range& range : tensor.parts)
      for (std::int64_t part = range.begin; part < range.end; ++part) parts.insert(part);
  }
  bool all_parts = true;
  for (const std::int64_t part : parts) all_parts = read_part(static_cast<std::size_t>(part), faults) && all_parts;
  check_slices(faults);
  std::set<std::size_t> files;
  for (const StoredTensor* tensor : needed) {
    if (all_parts) check_complete(*tensor, faults);
    for (const StoredSlice& slice : tensor->slices) files.insert(slice.file);
  }
  for (const std::size_t file : files) check_file(file, faults);
  throw_faults(faults);
}

void Reader::throw_faults(const Faults& faults) const {
  if (faults.lines.empty()) return;
  std::string message = text(shown_, ": ", faults.lines.size(), faults.lines.size() == 1 ? " fault" : " faults");
  if (faults.security) message = shown_ + ": symlinks are not followed";
  for (const std::string& line : faults.lines) message += "\n  " + line;
  require<SecurityError>(!faults.security, message, kLinkFix);
  require<StorageError>(!faults.storage, message, faults.permission ? kPermissionFix : kStorageFix);
  throw CheckpointError(message + kDamagedFix);
}

std::filesystem::path Reader::open_folder(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = without_slash(checkpoint);
  shown_ = path.string();
  folder_ = opened_folder(path, shown_);
  return path;
}

void Reader::use(Manifest manifest) {
  manifest_ = std::move(manifest);
  stamps_.resize(manifest_.files.size());
  headers_.resize(manifest_.files.size());
  has_slices_.assign(manifest_.files.size(), manifest_.parts.empty());  // version 1 lists all slices itself
}

void Reader::check_all(const std::filesystem::path& checkpoint, Faults& faults) {
  const std::filesystem::path path = open_folder(checkpoint);
  use(read_manifest(folder_.get(), shown_));
  const std::optional<std::int64_t> step = step_in_name(path.filename().string());
  if (step && *step != manifest_.training.step)
    faults.add(kManifestName, ": is of step ", manifest_.training.step, ", not ", *step);
  bool all_parts = true;
  for (std::size_t part = 0; part < manifest_.parts.size(); ++part) all_parts = read_part(part, faults) && all_parts;
  check_slices(faults);
  for (const StoredTensor& tensor : manifest_.tensors)
    if (all_parts) check_complete(tensor, faults);
  for (std::size_t file = 0; file < manifest_.files.size(); ++file)
    if (!std::ranges::binary_search(manifest_.parts, file)) check_file(file, faults);
  check_extra_files(path, faults);
  if (faults.security) throw_faults(faults);
}

/// Adds the slices of a part to the tensors. Returns false, with the fault, if it cannot be used.
bool Reader::read_part(std::size_t part, Faults& faults) {
  const std::size_t index = manifest_.parts[part];
  const std::string& name = manifest_.files[index].name;
  has_slices_[index] = true;
  headers_[index] = {{0, manifest_.files[index].bytes}};
  if (!check_file(index, faults)) return false;
  const Range files = files_of_part(manifest_, part);
  const auto first = static_cast<std::size_t>(files.begin);
  Manifest read;
  try {
    read = parse_part(small_file(name), name);
    require<CheckpointError>(read.id == manifest_.id, name, ": is of another checkpoint (", files::shown_name(read.id),
                             ", not ", manifest_.id, ")");
    require<CheckpointError>(
        std::ranges::equal(read.files,
                           std::span(manifest_.files).subspan(first, static_cast<std::size_t>(files.size()))),
        name, ": lists different files than the manifest");
    for (const StoredTensor& tensor : read.tensors) {
      const StoredTensor* whole = find(manifest_, tensor.name, tensor.kind);
      const auto has_part = [&](const Range& range) {
        return range.begin <= static_cast<std::int64_t>(part) && static_cast<std::int64_t>(part) < range.end;
      };
      require<CheckpointError>(whole != nullptr && whole->shape == tensor.shape && whole->dtype == tensor.dtype &&
                                   std::ranges::any_of(whole->parts, has_part),
                               name, ": ", files::shown_name(tensor.name), " ", files::shown_name(tensor.kind),
                               " does not match the tensor in the manifest");
    }
  } catch (const CheckpointError& error) {
    faults.lines.push_back(first_line(error.what()));
    return false;
  }
  for (StoredTensor& tensor : read.tensors) {
    const auto at = static_cast<std::size_t>(find(manifest_, tensor.name, tensor.kind) - manifest_.tensors.data());
    StoredTensor& whole = manifest_.tensors[at];
    for (StoredSlice& slice : tensor.slices) {
      slice.file += first;
      whole.slices.push_back(std::move(slice));
    }
  }
  for (std::size_t file = first; file < index; ++file) has_slices_[file] = true;
  return true;
}

void Reader::check_complete(const StoredTensor& tensor, Faults& faults) const {
  std::uint64_t bytes = 0;
  for (const StoredSlice& slice : tensor.slices) bytes += bytes_of(tensor, slice.box);
  const std::uint64_t whole = bytes_of(tensor);
  if (bytes != whole)
    faults.add(kManifestName, ": ", files::shown_name(tensor.name), " ", files::shown_name(tensor.kind),
               ": the slices have ", bytes, " bytes, the tensor ", whole);
}

/// Size and header; returns whether there is no fault.
bool Reader::check_file(std::size_t index, Faults& faults) {
  const StoredFile& file = manifest_.files[index];
  const std::size_t before = faults.lines.size();
  try {
    with_retries([&] {
      const int fd = files::open_path_beneath(folder_.get(), file.name);
      if (fd < 0) throw_not_opened(file.name, errno);
      const files::RandomReader reader(fd, file.name);
      if (reader.size() == file.bytes) stamps_[index] = reader.stamp();
      const bool right = !has_slices_[index] || hash_of(reader, headers_[index]) == file.header_hash;
      // The id is in the header: without the slices nobody knows where that ends.
      const bool asks_for_id = is_rank_file(file.name) && (!right || !has_slices_[index]);
      const std::string id = asks_for_id ? id_in(reader) : "";
      if (!id.empty() && id != manifest_.id)
        faults.add(file.name, ": is of another checkpoint (", files::shown_name(id), ", not ", manifest_.id, ")");
      else if (reader.size() != file.bytes)
        faults.add(file.name, ": has ", reader.size(), " bytes, not ", file.bytes);
      else if (!right)
        faults.add(file.name, ": the ", file.header_bytes, " bytes that are in no tensor do not have the hash ",
                   str(file.header_hash));
    });
  } catch (const Error& error) {
    faults.lines.push_back(first_line(error.what()));
    faults.security = faults.security || error.exit_code() == ExitCode::security;
    faults.storage = faults.storage || error.exit_code() == ExitCode::storage ||
                     dynamic_cast<const files::ReadFailed*>(&error) != nullptr;
    faults.permission = faults.permission || std::string_view(error.what()).ends_with(kPermissionFix);
  }
  add_progress();
  return faults.lines.size() == before;
}

/// In the folder of the checkpoint the files of ranks; in the folders below it, as far as the manifest uses them, what
/// is named like the files with tensors there. Other files may be put beside them.
void Reader::check_extra_files(const std::filesystem::path& checkpoint, Faults& faults) const {
  namespace fs = std::filesystem;
  std::set<std::string> listed, extra;
  std::set<fs::path> folders;  // those directly in the checkpoint
  for (const StoredFile& file : manifest_.files) {
    listed.insert(file.name);
    if (const fs::path path = file.name; path.has_parent_path()) folders.insert(*path.begin());
  }
  const auto check = [&](const fs::path& path, bool is_shard) {
    const std::string name = path.lexically_relative(checkpoint).string();
    if (is_shard && !listed.contains(name)) extra.insert(name);
  };
  // A folder that is missing is told as its files are.
  const auto require_listed = [this](const std::error_code& failed) {
    if (failed && failed != std::errc::no_such_file_or_directory) throw_not_opened(shown_, failed.value());
  };
  as_checkpoint_error([&] {
    std::error_code failed;
    for (auto entry = fs::directory_iterator(checkpoint, failed); !failed && entry != fs::directory_iterator();
         entry.increment(failed))
      check(entry->path(), is_rank_file(entry->path().filename().string()));
    require_listed(failed);
    for (const fs::path& folder : folders) {
      for (auto entry = fs::recursive_directory_iterator(checkpoint / folder, failed);
           !failed && entry != fs::recursive_directory_iterator(); entry.increment(failed)) {
        const std::string kind = entry->path().extension().string();
        check(entry->path(), kind == ".safetensors" || kind == ".pt");
      }
      require_listed(failed);
    }
  });
  for (const std::string& name : extra)
    faults.add(is_rank_file(name) ? name : files::shown_name(name),
               ": is not of this checkpoint: the manifest does not list it");
}

void Reader::check_slices(Faults& faults) {
  std::vector<std::vector<ByteRange>> slices(manifest_.files.size());
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    const StoredFile& file = manifest_.files[i];
    if (!names.insert(file.name).second || file.name == kManifestName)
      faults.add(file.name, ": the manifest lists it twice, or lists itself");
  }
  for (const StoredTensor& tensor : manifest_.tensors) {
    std::vector<Box> boxes;
    for (const StoredSlice& slice : tensor.slices) boxes.push_back(slice.box);
    if (const auto two = overlapping(boxes))
      faults.add(kManifestName, ": ", slice_name(tensor, boxes[two->second]), " overlaps another slice");
    for (const StoredSlice& slice : tensor.slices)
      slices[slice.file].push_back({slice.offset, slice.offset + bytes_of(tensor, slice.box)});
  }
  for (std::size_t i = 0; i < manifest_.files.size(); ++i) {
    const StoredFile& file = manifest_.files[i];
    const bool is_part = std::ranges::binary_search(manifest_.parts, i);
    const bool is_small = !manifest_.parts.empty() && i > manifest_.parts.back();
    if (is_small) has_slices_[i] = true;  // it has none
    if (is_part || !has_slices_[i]) continue;
    std::ranges::sort(slices[i], {}, &ByteRange::begin);
    std::uint64_t at = 0, outside = 0;
    slices[i].push_back({file.bytes, file.bytes});
    for (const auto& [begin, end] : slices[i]) {
      if (begin < at)
        faults.add(file.name, ": by the manifest, the bytes from ", begin, " to ", at, " are in two slices");
      if (begin > at) headers_[i].push_back({at, begin});
      outside += begin > at ? begin - at : 0;
      at = std::max(at, end);
    }
    if (outside != file.header_bytes)
      faults.add(file.name, ": by the manifest, ", outside, " bytes are in no slice, where ", file.header_bytes,
                 " should be");
  }
}

}  // namespace trireme::checkpoint
