// `trireme checkpoint verify`.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/stopwatch.hpp"
#include "trireme/base/table.hpp"
#include "trireme/checkpoint/format/exported_files.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/progress_line.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::cli {
namespace {

struct SliceToRead {
  const checkpoint::StoredTensor* tensor;
  const checkpoint::StoredSlice* slice;
  auto place() const { return std::pair(slice->file, slice->offset); }
};

/// Reads all slices by several threads, in the order of the files. Adds a line to `faults` for each that is damaged.
class SliceVerifier {
 public:
  SliceVerifier(const checkpoint::Reader& reader, ProgressLine& line) : reader_(reader), line_(line) {
    for (const checkpoint::StoredTensor& tensor : reader.manifest().tensors)
      for (const checkpoint::StoredSlice& slice : tensor.slices)
        if (reader.is_readable(slice.file)) {
          slices_.push_back({&tensor, &slice});
          progress_.of += bytes_of(tensor, slice.box);
        }
    std::ranges::sort(slices_, {}, &SliceToRead::place);
  }

  void run(unsigned workers, std::vector<std::string>& faults) {
    {
      std::vector<std::jthread> threads;
      for (unsigned i = 0; i < workers; ++i) threads.emplace_back([this] { read_slices(); });
    }
    std::ranges::sort(faults_);
    for (auto& [place, fault] : faults_) faults.push_back(std::move(fault));
  }

  std::uint64_t bytes() const { return progress_.of; }
  std::size_t slices() const { return slices_.size(); }

 private:
  void read_slices() {
    std::vector<std::byte> buffer;
    for (std::size_t i = next_++; i < slices_.size(); i = next_++) {
      const auto& [tensor, slice] = slices_[i];
      std::string fault;
      try {
        buffer.resize(static_cast<std::size_t>(bytes_of(*tensor, slice->box)));
        reader_.read_slice(*tensor, *slice, buffer);
      } catch (const std::exception& error) {
        fault = error.what();
        fault.resize(std::min(fault.find('\n'), fault.size()));
        if (fault.starts_with(reader_.shown() + "/")) fault.erase(0, reader_.shown().size() + 1);
      }
      const std::lock_guard lock(mutex_);
      if (!fault.empty()) faults_.emplace_back(slices_[i].place(), fault);
      progress_.taken += buffer.size();
      progress_.read_bytes = progress_.taken;
      line_.show(progress_);
    }
  }

  const checkpoint::Reader& reader_;
  ProgressLine& line_;
  std::vector<SliceToRead> slices_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;  // of what follows
  data::DataProgress progress_;
  std::vector<std::pair<std::pair<std::size_t, std::uint64_t>, std::string>> faults_;
};

/// `exported`: files that were added to the checkpoint later, if any.
std::string file_table(const checkpoint::Manifest& manifest, const std::vector<checkpoint::StoredFile>& exported,
                       const std::vector<std::string>& faults) {
  std::vector<std::size_t> slices(manifest.files.size());
  for (const checkpoint::StoredTensor& tensor : manifest.tensors)
    for (const checkpoint::StoredSlice& slice : tensor.slices) ++slices[slice.file];
  std::vector<TableRow> rows;
  const auto add_row = [&](const checkpoint::StoredFile& file, std::size_t count_of_slices, bool is_read) {
    const auto count = std::ranges::count_if(faults, [&](const std::string& fault) {
      return fault.starts_with(file.name + ":") || fault.starts_with(file.name + " ");
    });
    rows.push_back({file.name, human_bytes(static_cast<double>(file.bytes)),
                    thousands(static_cast<std::int64_t>(count_of_slices)),
                    count > 0 ? text(count, count == 1 ? " fault" : " faults")
                    : is_read ? "ok"
                              : "not read"});
  };
  for (std::size_t i = 0; i < manifest.files.size(); ++i) {
    // The slices of a file are listed by a part of the manifest, which may be missing.
    const bool has_none = slices[i] == 0 && manifest.files[i].name.ends_with(".safetensors");
    add_row(manifest.files[i], slices[i], faults.empty() || !has_none);
  }
  for (const checkpoint::StoredFile& file : exported) add_row(file, 0, true);
  return table({"file", "bytes", "slices", "verdict"}, rows);
}

/// Files that nobody can verify, because no list has their hashes; sorted.
std::string unlisted_files(const std::filesystem::path& checkpoint, const checkpoint::Manifest& manifest,
                           const std::vector<checkpoint::StoredFile>& exported) {
  std::vector<std::string> names;
  std::error_code failed;
  for (auto entry = std::filesystem::directory_iterator(checkpoint, failed);
       !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (!entry->is_directory(failed) && name != checkpoint::kManifestName && name != checkpoint::kExportListName &&
        std::ranges::find(manifest.files, name, &checkpoint::StoredFile::name) == manifest.files.end() &&
        std::ranges::find(exported, name, &checkpoint::StoredFile::name) == exported.end())
      names.push_back(files::shown_name(name));
  }
  std::ranges::sort(names);
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

int run_checkpoint_verify(const CheckpointVerifyCommand& command, Console& console) {
  constexpr unsigned kMostThreads = 8;  // a disk is not faster for more
  require<ConfigError>(command.workers >= 0, "--workers ", command.workers, ": must not be negative");
  const MeantCheckpoint meant = meant_checkpoint(command.path);
  const Stopwatch watch;
  std::vector<std::string> faults;
  checkpoint::Reader reader(meant.path, faults);
  reader.read_each_once();
  ProgressLine line(console.err, console.err_terminal.tty && !command.quiet, console.err_terminal.width, "reading");
  SliceVerifier slices(reader, line);
  slices.run(command.workers > 0 ? static_cast<unsigned>(command.workers)
                                 : std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads),
             faults);
  std::vector<checkpoint::StoredFile> exported;
  try {
    if (const auto list = checkpoint::exported_in(meant.path, reader.manifest().id)) {
      exported = list->files;
      for (std::string& fault : checkpoint::faults_of_exported(meant.path, *list)) faults.push_back(std::move(fault));
    }
  } catch (const CheckpointError& error) {
    const std::string what = error.what();
    faults.push_back(text(checkpoint::kExportListName, ": ", what.substr(0, what.find('\n'))));
  }
  line.clear();
  if (!command.quiet) {
    const double seconds = std::max(watch.seconds(), 1e-9);
    console.out << "checkpoint   " << meant.path.string() << "\n"
                << others_text(meant) << "read         " << human_bytes(static_cast<double>(slices.bytes())) << " in "
                << thousands(static_cast<std::int64_t>(slices.slices())) << " slices · " << human_seconds(seconds)
                << " · " << human_bytes(static_cast<double>(slices.bytes()) / seconds) << "/s\n\n"
                << file_table(reader.manifest(), exported, faults);
  }
  if (faults.empty()) {
    const std::string unlisted = unlisted_files(meant.path, reader.manifest(), exported);
    if (!command.quiet && !unlisted.empty())
      console.out << "\nnot verified: " << unlisted << ": not part of the checkpoint, no hash\n";
    if (!command.quiet) console.out << "\nok: every byte is as it was saved\n";
    return static_cast<int>(ExitCode::done);
  }
  std::string message = text(meant.path.string(), ": ", faults.size(), faults.size() == 1 ? " fault" : " faults");
  for (const std::string& fault : faults) message += "\n  " + files::shown_text(fault);
  throw CheckpointError(message + "\n  fix: fetch the files again from where they came, or use another checkpoint");
}

}  // namespace trireme::cli
