#include "trireme/data/prepare/document_reader.hpp"

#include <algorithm>
#include <numeric>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"

namespace trireme::data {
namespace {

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos; }

}  // namespace

std::optional<TextCut> text_cut(std::string_view name) {
  if (name == "file") return TextCut::file;
  if (name == "lines") return TextCut::lines;
  if (name == "blank-line") return TextCut::blank_lines;
  return std::nullopt;
}

std::uint64_t DocumentReader::disk_bytes() const {
  return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const InputFile& file) { return sum + file.bytes; });
}

bool DocumentReader::next(TextBatch& batch) {
  batch.bytes.clear();
  batch.pieces.clear();
  while (batch.bytes.size() < batch_bytes_ || batch.pieces.empty()) {
    if (!open_ && next_file_ == files_.size()) break;
    if (batch.pieces.empty()) batch.bytes.clear();  // blank lines
    if (!open_) open_next();
    const TextLayout layout = files_[next_file_ - 1].layout;
    if (layout == TextLayout::json_list)
      read_list(batch);
    else if (layout == TextLayout::text && cut_ == TextCut::file)
      read_whole(batch);
    else
      read_lines(batch);
  }
  batch.taken = taken_ + (open_ ? open_->taken() : 0);
  return !batch.pieces.empty();
}

void DocumentReader::open_next() {
  const InputFile& file = files_[next_file_++];
  open_.emplace(file);
  line_ = 1;
  carry_.resize(kByteOrderMark.size());
  carry_.resize(open_->read(carry_));
  if (carry_ == kByteOrderMark) carry_.clear();
  document_.reset();
  looked_at_ = 0;
  list_ = {};
}

void DocumentReader::close() {
  taken_ += open_->taken();
  open_.reset();
  carry_.clear();
}

/// Appends up to `bytes`; returns the number read.
std::size_t DocumentReader::append(TextBatch& batch, std::size_t bytes) {
  const std::size_t before = batch.bytes.size();
  batch.bytes.resize(before + bytes);
  const std::size_t got = open_->read(std::span(batch.bytes).subspan(before));
  batch.bytes.resize(before + got);
  return got;
}

void DocumentReader::read_whole(TextBatch& batch) {
  const std::size_t begin = batch.bytes.size();
  batch.bytes += carry_;
  const InputFile& file = files_[next_file_ - 1];
  // One byte more than the file size detects its end; the size of a compressed file or a pipe is unknown.
  const bool unknown = file.compression != Compression::none || file.held;
  std::size_t step = unknown ? batch_bytes_ : std::min<std::size_t>(file.bytes, kMaxPieceBytes) + 1;
  while (append(batch, step) == step) {
    const std::size_t size = batch.bytes.size() - begin;
    require<DataError>(size <= kMaxPieceBytes, file.shown(), ": a document of more than ",
                       thousands(static_cast<std::int64_t>(kMaxPieceBytes)),
                       " bytes\n  fix: --documents blank-line or lines, if that is what it is made of");
    step = std::max(batch_bytes_, size);
  }
  // An empty file is an empty document.
  batch.pieces.push_back({begin, batch.bytes.size(), next_file_ - 1, 1});
  close();
}

/// Reads until a document is complete or the file ends; the rest after the last complete one is kept in carry_.
void DocumentReader::read_lines(TextBatch& batch) {
  const std::size_t begin = batch.bytes.size(), pieces = batch.pieces.size();
  batch.bytes += carry_;
  carry_.clear();
  if (document_) {  // it is at the beginning of carry_
    document_->begin += begin;
    document_->end += begin;
  }
  std::size_t line_begin = begin + looked_at_, searched = line_begin;
  for (;;) {
    const std::size_t held = batch.bytes.size() - begin;
    const std::size_t step = std::max(batch_bytes_, held);  // doubles each time: a long line takes few reads
    const bool ended = append(batch, step) < step;
    for (;;) {
      const std::size_t end = batch.bytes.find('\n', searched);
      if (end == std::string::npos) break;
      take_line(batch, line_begin, end);
      line_begin = searched = end + 1;
      ++line_;
    }
    searched = batch.bytes.size();
    if (ended) {
      if (line_begin < batch.bytes.size()) take_line(batch, line_begin, batch.bytes.size());
      end_document(batch);
      return close();
    }
    const std::size_t kept = document_ ? document_->begin : line_begin;
    if (batch.pieces.size() > pieces || kept == batch.bytes.size()) {
      carry_.assign(batch.bytes, kept);
      batch.bytes.resize(kept);
      looked_at_ = line_begin - kept;
      if (document_) {
        document_->end -= kept;
        document_->begin = 0;
      }
      return;
    }
    require<DataError>(batch.bytes.size() - kept <= kMaxPieceBytes, files_[next_file_ - 1].shown(), ":",
                       document_ ? document_->line : line_, ": a ", document_ ? "document" : "line", " of more than ",
                       thousands(static_cast<std::int64_t>(kMaxPieceBytes)),
                       " bytes\n  fix: is this a text with one document a line?");
  }
}

/// Reads until an element of the list is complete or the file ends, like read_lines.
void DocumentReader::read_list(TextBatch& batch) {
  const std::size_t begin = batch.bytes.size(), pieces = batch.pieces.size(), file = next_file_ - 1;
  batch.bytes += carry_;
  carry_.clear();
  std::size_t element = begin, at = begin + looked_at_;
  for (;;) {
    const std::size_t step = std::max(batch_bytes_, batch.bytes.size() - begin);
    const bool ended = append(batch, step) < step;
    for (; at < batch.bytes.size(); ++at) {
      const auto found = list_.take(batch.bytes[at]);
      require<DataError>(found != JsonListCutter::Found::error, files_[file].shown(), ":", list_.line(),
                         ": there is text behind the end of the list\n  fix: one list [...], or one object a line");
      if (found == JsonListCutter::Found::nothing) continue;
      if (found == JsonListCutter::Found::element) batch.pieces.push_back({element, at, file, list_.element_line()});
      element = at + 1;
    }
    if (ended) {
      require<DataError>(list_.complete(), files_[file].shown(), ":", list_.line(), ": the list has no end: the file ",
                         "is cut short");
      return close();
    }
    if (batch.pieces.size() > pieces) {
      carry_.assign(batch.bytes, element);
      batch.bytes.resize(element);
      looked_at_ = carry_.size();
      return;
    }
    require<DataError>(batch.bytes.size() - element <= kMaxPieceBytes, files_[file].shown(), ":", list_.element_line(),
                       ": an element of more than ", thousands(static_cast<std::int64_t>(kMaxPieceBytes)), " bytes");
  }
}

void DocumentReader::take_line(TextBatch& batch, std::size_t begin, std::size_t end) {
  if (end > begin && batch.bytes[end - 1] == '\r') --end;
  const std::size_t file = next_file_ - 1;
  const bool blank = is_blank(std::string_view(batch.bytes).substr(begin, end - begin));
  if (files_[file].layout != TextLayout::text || cut_ == TextCut::lines) {
    if (!blank) batch.pieces.push_back({begin, end, file, line_});
  } else if (blank) {
    end_document(batch);
  } else if (document_) {
    document_->end = end;
  } else {
    document_ = DocumentText{begin, end, file, line_};
  }
}

void DocumentReader::end_document(TextBatch& batch) {
  if (document_) batch.pieces.push_back(*document_);
  document_.reset();
}

}  // namespace trireme::data
