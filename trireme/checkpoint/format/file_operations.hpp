#pragma once
// Small steps of saving a checkpoint, through files::Fs: whatever fails names the path, the operation and the reason.
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/files/fs.hpp"

namespace trireme::checkpoint {

/// CheckpointError "PATH: cannot OPERATION: reason" with a fix, unless `error` (an errno) is 0.
void check_done(int error, const std::filesystem::path& path, const std::string& operation);

/// A new file, brought to the disk. CheckpointError.
void write_new_file(files::Fs& fs, const std::filesystem::path& file, std::string_view contents);

/// Without following symlinks.
bool exists_at_all(const std::filesystem::path& path);
bool is_real_folder(const std::filesystem::path& path);

/// The names in a folder, sorted. An errno where it cannot be listed.
int list_names(const std::filesystem::path& folder, std::vector<std::string>& names);

}  // namespace trireme::checkpoint
