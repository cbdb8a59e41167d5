#pragma once
// Splits text files into documents, in batches that worker threads process.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/prepare/json_list.hpp"
#include "trireme/data/prepare/text_file.hpp"

namespace trireme::data {

/// How a text file is split into documents. JSON lines are always split by lines, and a JSON list into its elements.
enum class TextCut {
  file,        // the whole file, unchanged
  lines,       // each non-blank line, without its newline
  blank_lines  // paragraphs between blank lines, without the final newline
};
/// "file", "lines", "blank-line".
std::optional<TextCut> text_cut(std::string_view name);

/// A line of JSON, an element of a JSON list, or the text of a document.
struct DocumentText {
  std::size_t begin = 0, end = 0;  // in TextBatch::bytes
  std::size_t file = 0;            // DocumentReader::file
  std::int64_t line = 1;           // first line in that file, from 1
};

struct TextBatch {
  std::string bytes;
  std::vector<DocumentText> pieces;
  std::uint64_t taken = 0;  // bytes on disk read so far

  std::string_view text(const DocumentText& piece) const {
    return std::string_view(bytes).substr(piece.begin, piece.end - piece.begin);
  }
};

class DocumentReader {
 public:
  // Small enough for a batch, its texts and its tokens to stay in a core's cache.
  static constexpr std::size_t kBatchBytes = std::size_t{1} << 18, kMaxPieceBytes = std::size_t{1} << 30;

  DocumentReader(std::vector<InputFile> files, TextCut cut, std::size_t batch_bytes = kBatchBytes)
      : files_(std::move(files)), cut_(cut), batch_bytes_(batch_bytes) {}

  const InputFile& file(std::size_t number) const { return files_[number]; }
  std::uint64_t disk_bytes() const;

  /// Reads about batch_bytes more, at least one piece; false at the end. A byte order mark at the beginning of a file
  /// is dropped. DataError for a piece of more than kMaxPieceBytes, and as in TextFile::read.
  bool next(TextBatch& batch);

 private:
  void open_next();
  void close();
  void read_whole(TextBatch& batch);
  void read_lines(TextBatch& batch);
  void read_list(TextBatch& batch);
  void take_line(TextBatch& batch, std::size_t begin, std::size_t end);
  void end_document(TextBatch& batch);
  std::size_t append(TextBatch& batch, std::size_t bytes);

  std::vector<InputFile> files_;
  TextCut cut_;
  std::size_t batch_bytes_;

  std::size_t next_file_ = 0;  // index after the open file
  std::optional<TextFile> open_;
  std::uint64_t taken_ = 0;  // bytes of the files before the open one
  std::int64_t line_ = 1;    // line number of the next byte to process
  std::string carry_;        // bytes already read that belong to the next batch
  // The current document, for TextCut::blank_lines: offsets in the batch.
  std::optional<DocumentText> document_;
  std::size_t looked_at_ = 0;  // length of the part of carry_ that has been looked at: its complete lines
  JsonListCutter list_;
};

}  // namespace trireme::data
