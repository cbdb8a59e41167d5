#pragma once
// Cuts files of text into documents, in batches that other threads take apart further.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/prepare/input_files.hpp"

namespace trireme::data {

/// What a document of a text file is. JSON lines are cut by lines whatever this says.
enum class TextCut {
  file,        // all of it, as it is
  lines,       // each line that has more than white space in it, without its end
  blank_lines  // what stands between lines of white space, without the end of its last line
};
/// "file", "lines", "blank-line".
std::optional<TextCut> text_cut(std::string_view name);

/// A line of JSON, or the text of a document.
struct DocumentText {
  std::size_t begin = 0, end = 0;  // in TextBatch::bytes
  std::size_t file = 0;            // DocumentReader::file
  std::int64_t line = 1;           // where it begins in that file, from 1
};

struct TextBatch {
  std::string bytes;
  std::vector<DocumentText> pieces;
  std::uint64_t taken = 0;  // bytes on disk of all that was read up to here

  std::string_view text(const DocumentText& piece) const {
    return std::string_view(bytes).substr(piece.begin, piece.end - piece.begin);
  }
};

class DocumentReader {
 public:
  // A batch, its texts and its tokens stay in a core's cache.
  static constexpr std::size_t kBatchBytes = std::size_t{1} << 18, kMaxPieceBytes = std::size_t{1} << 30;

  DocumentReader(std::vector<InputFile> files, TextCut cut, std::size_t batch_bytes = kBatchBytes)
      : files_(std::move(files)), cut_(cut), batch_bytes_(batch_bytes) {}

  const InputFile& file(std::size_t number) const { return files_[number]; }
  std::uint64_t disk_bytes() const;

  /// About batch_bytes more, at least one piece; false when there are no more. A mark of byte order at the beginning of a file is
  /// dropped. DataError for a piece of more than kMaxPieceBytes, and as TextFile::read.
  bool next(TextBatch& batch);

 private:
  void open_next();
  void close();
  void read_whole(TextBatch& batch);
  void read_lines(TextBatch& batch);
  void take_line(TextBatch& batch, std::size_t begin, std::size_t end);
  void end_document(TextBatch& batch);
  std::size_t append(TextBatch& batch, std::size_t bytes);

  std::vector<InputFile> files_;
  TextCut cut_;
  std::size_t batch_bytes_;

  std::size_t next_file_ = 0;  // one behind the open one
  std::optional<TextFile> open_;
  std::uint64_t taken_ = 0;  // of the files before the open one
  std::int64_t line_ = 1;    // the one that the next byte to be looked at is in
  std::string carry_;        // what was read and belongs into the next batch
  // The document that is being read, for TextCut::blank_lines: offsets in the batch.
  std::optional<DocumentText> document_;
  std::size_t looked_at_ = 0;  // how much of carry_ is of whole lines
};

}  // namespace trireme::data
