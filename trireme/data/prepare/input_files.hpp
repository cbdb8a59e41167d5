#pragma once
// Finds the text input files of a command.
#include <string>
#include <vector>

#include "trireme/data/prepare/text_file.hpp"

namespace trireme::data {

/// Which files of a folder are taken. A pattern with a slash is matched with the path below the folder, others with the
/// file name; `*` and `?` as in a shell.
struct InputFilter {
  std::vector<std::string> include, exclude;  // empty include: all
};

struct SkippedFile {
  std::filesystem::path path;
  std::string why;  // "a PNG image"
};

struct TextInputs {
  std::vector<InputFile> files;
  std::vector<SkippedFile> skipped;  // of folders, not counting hidden files and those that the filter leaves out; and
                                     // what was found before, under whatever name
  std::vector<std::string> named;    // by the user
};

/// `inputs` are files, folders, pipes, or "-": standard input. A folder means all files below it that hold text (Note
/// [What is text]), sorted by path, except hidden ones; what it leaves out is listed, also symlinks to folders and
/// folders that cannot be read. A file counts once, however often it is named or linked.
/// .jsonl, .ndjson and .json are JSON lines, or a list; others text. `twice`: a pipe is copied to a temporary file, so
/// that it can be read again. DataError for missing inputs, for named files that are not text, and if there is no file
/// at all.
TextInputs find_inputs(const std::vector<std::string>& inputs, const InputFilter& filter = {}, bool twice = false);

}  // namespace trireme::data
