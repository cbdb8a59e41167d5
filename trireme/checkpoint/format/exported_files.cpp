#include "trireme/checkpoint/format/exported_files.hpp"

#include <algorithm>
#include <functional>

#include "trireme/base/error.hpp"
#include "trireme/base/sha256.hpp"
#include "trireme/checkpoint/format/file_operations.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/format/step_folder.hpp"
#include "trireme/files/random_reader.hpp"
#include "trireme/files/whole_file.hpp"

namespace trireme::checkpoint {
namespace {

namespace stdfs = std::filesystem;

/// DataError if it cannot be read.
StoredFile described(const stdfs::path& file, const std::function<void()>& progress = {}) {
  const files::RandomReader reader(file);
  files::Xxh3Stream hash;
  std::vector<std::byte> buffer(std::size_t{1} << 20);
  for (std::uint64_t at = 0; at < reader.size(); at += buffer.size()) {
    buffer.resize(static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), reader.size() - at)));
    reader.read(at, buffer);
    hash.add(buffer);
    if (progress) progress();
  }
  return {.name = file.filename().string(),
          .bytes = reader.size(),
          .header_bytes = reader.size(),
          .header_hash = hash.result()};
}

}  // namespace

stdfs::path begin_export(files::Fs& fs, const stdfs::path& checkpoint) {
  const std::optional<std::int64_t> step = step_in_name(checkpoint.filename().string());
  require(step.has_value(), "begin_export: ", checkpoint.string(), " is not named step-N");
  const stdfs::path folder = checkpoint.parent_path() / temporary_step_name(*step, hex_digits(random_bytes(16)));
  check_done(fs.make_folder(folder), folder, "be made");
  return folder;
}

void add_exported(files::Fs& fs, const stdfs::path& exported, const stdfs::path& checkpoint,
                  const std::function<void()>& progress) {
  const Manifest manifest = manifest_in(checkpoint);
  Manifest list{.id = manifest.id, .program = manifest.program, .time = manifest.time};
  list.training.step = manifest.training.step;
  std::vector<std::string> names;
  check_done(list_names(exported, names), exported, "be listed");
  try {
    for (const std::string& name : names) list.files.push_back(described(exported / name, progress));
  } catch (const DataError& e) {
    throw CheckpointError(e.what());
  }
  write_new_file(fs, exported / kExportListName, to_json(list));
  // An old list must not describe new files. There is one if an export was interrupted and is made again.
  if (exists_at_all(checkpoint / kExportListName))
    check_done(fs.remove_file(checkpoint / kExportListName), checkpoint / kExportListName, "be removed");
  names.emplace_back(kExportListName);
  for (const std::string& name : names)
    check_done(fs.rename(exported / name, checkpoint / name), checkpoint / name, "be renamed to");
  check_done(fs.sync_folder(checkpoint), checkpoint, "be flushed to disk");
  check_done(fs.remove_folder(exported), exported, "be removed");
}

std::optional<Manifest> exported_in(const stdfs::path& checkpoint, const std::string& id) {
  const stdfs::path file = checkpoint / kExportListName;
  if (!exists_at_all(file)) return std::nullopt;
  try {
    Manifest list = parse_part(files::whole_file(file, kMaxManifestBytes, kExportListName), file.string());
    require<CheckpointError>(list.id == id, file.string(), ": is of another checkpoint (", list.id, ", not ", id, ")");
    return list;
  } catch (const DataError& e) {
    throw CheckpointError(e.what());
  }
}

std::vector<std::string> faults_of_exported(const stdfs::path& checkpoint, const Manifest& list) {
  std::vector<std::string> faults;
  for (const StoredFile& file : list.files) try {
      const stdfs::path path = checkpoint / file.name;
      if (!exists_at_all(path)) {
        faults.push_back(file.name + ": is missing");
        continue;
      }
      const StoredFile now = described(path);
      if (now.bytes != file.bytes)
        faults.push_back(text(file.name, ": has ", now.bytes, " bytes, not ", file.bytes));
      else if (now.header_hash != file.header_hash)
        faults.push_back(text(file.name, ": has the hash ", str(now.header_hash), ", not ", str(file.header_hash)));
    } catch (const DataError& error) {
      const std::string what = error.what();
      faults.push_back(text(file.name, ": ", what.substr(0, what.find('\n'))));
    }
  return faults;
}

}  // namespace trireme::checkpoint
