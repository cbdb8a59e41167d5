#include "trireme/data/tokens/datatrove_tokens.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/file_tokens.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

constexpr std::uint64_t kMaxMetadataBytes = 65'536;

std::filesystem::path beside(const std::filesystem::path& path, std::string_view ending) {
  return path.string().append(ending);
}

std::string_view next_line(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// datatrove's format: three digits, then the unit of a thousand, then T for tokens.
std::string count_for_people(std::int64_t count) {
  const auto exponent = static_cast<int>(std::to_string(count).size()) - 1;
  double value = static_cast<double>(count);
  for (int i = 0; i < exponent / 3; ++i) value /= 1000;
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.begin(), digits.end(), value, std::chars_format::fixed, 2 - exponent % 3).ptr;
  constexpr std::array<std::string_view, 7> kUnits = {"", "k", "M", "G", "T", "P", "E"};
  return text(std::string_view(digits.begin(), end), " ", kUnits.at(static_cast<std::size_t>(exponent / 3)), "T");
}

DatatroveMetadata read_metadata(const std::filesystem::path& path) {
  const files::RandomReader file(path);
  require<DataError>(file.size() <= kMaxMetadataBytes, file.shown(), ": ", file.size(), " bytes; at most ",
                     kMaxMetadataBytes, " are allowed for its few lines of text");
  std::string words(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(words)));
  return parse_datatrove_metadata(words, file.shown());
}

void check_exists(const std::filesystem::path& path, const std::filesystem::path& ds, std::string_view what) {
  require<DataError>(files::is_there(path), ds.string(), ": there is no ", path.filename().string(),
                     " beside it, which holds ", what, "\n  fix: copy it here too, or prepare the data again");
}

std::shared_ptr<const TokenArray> open_tokens_of(const std::filesystem::path& path, const DatatroveMetadata& metadata) {
  files::RandomReader file(path);
  const std::uint64_t bytes = bytes_of(metadata.type), count = static_cast<std::uint64_t>(metadata.num_tokens);
  if (file.size() % bytes != 0 || file.size() / bytes != count) {
    const std::uint64_t other = 6 - bytes;  // 2 or 4
    const bool is_other = file.size() % other == 0 && file.size() / other == count;
    throw DataError(
        text(file.shown(), ": ", file.size(), " bytes, but its metadata says ", count, " tokens of ", bytes, " bytes",
             is_other ? text("\n  fix: its tokens have ", other, " bytes: end line 1 of ", path.filename().string(),
                             ".metadata with |", other)
                      : "\n  fix: fetch the data again; the file is cut short, or its metadata is of other data"));
  }
  return std::make_shared<TokenArray>(std::move(file), 0, metadata.type, metadata.num_tokens);
}

std::unique_ptr<const DocumentEnds> open_index(const std::filesystem::path& path, std::int64_t num_tokens) {
  const auto file = std::make_shared<const files::RandomReader>(path);
  require<DataError>(file->size() % 8 == 0 && file->size() > 0, file->shown(), ": ", file->size(),
                     " bytes; it must hold 8 for each document, and at least one",
                     "\n  fix: fetch the file again; this one is cut short");
  const auto load = [file](std::int64_t first, std::span<std::int64_t> out) {
    file->read_numbers(static_cast<std::uint64_t>(first) * 8, out);  // 2^63 and more: negative, and rejected
  };
  return std::make_unique<IndexedEnds>(static_cast<std::int64_t>(file->size() / 8), num_tokens, load, file->shown());
}

class DatatroveWriter : public TokenWriter {
 public:
  DatatroveWriter(const std::filesystem::path& path, TokenWriterOptions options)
      : TokenWriter(path.string(), TokenFormat::datatrove, std::move(options)),
        path_(path),
        type_(this->options().vocab_size <= 65'536 ? TokenType::u16 : TokenType::u32),
        tokens_(files().add(path)),
        index_(files().add(beside(path, ".index"))),
        loss_(this->options().loss_mask ? &files().add(beside(path, ".loss")) : nullptr) {
    if (loss_ == nullptr) files().obsolete(beside(path, ".loss"));
  }

 private:
  void write(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask) override {
    tokens_.append(encoded(ids, type_));
    const auto end = static_cast<std::uint64_t>(num_tokens()) + ids.size();
    index_.append(files::little_endian_bytes(std::span(&end, 1)));
    if (loss_ != nullptr) loss_->append(files::little_endian_bytes(loss_mask));
  }

  void complete() override {
    files::StagedFile& metadata = files().add(beside(path_, ".metadata"));
    metadata.append(datatrove_metadata_text({type_, num_tokens(), options().tokenizer}));
  }

  std::filesystem::path path_;
  TokenType type_;
  files::StagedFile& tokens_;
  files::StagedFile& index_;
  files::StagedFile* loss_;
};

}  // namespace

DatatroveMetadata parse_datatrove_metadata(std::string_view metadata, const std::string& shown) {
  DatatroveMetadata found;
  std::string_view tokenizer = next_line(metadata), count = next_line(metadata);
  // Split at the last bar: datatrove writes "Unknown Tokenizer|4|4" for a tokenizer without a name.
  if (const std::size_t bar = tokenizer.rfind('|'); bar != std::string_view::npos) {
    const std::string_view bytes = tokenizer.substr(bar + 1);
    require<DataError>(bytes == "2" || bytes == "4", shown, ": line 1 says that a token has ", files::shown_name(bytes),
                       " bytes; 2 or 4 are read\n  fix: line 1 is the tokenizer's name, |, and 2 or 4");
    found.type = bytes == "2" ? TokenType::u16 : TokenType::u32;
    tokenizer = tokenizer.substr(0, bar);
  }
  found.tokenizer.name = tokenizer;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), found.num_tokens);
  require<DataError>(error == std::errc() && end == count.data() + count.size() && !count.starts_with('-'), shown,
                     ": line 2 is ", files::shown_name(count), "; it must be the number of tokens, below 2^63",
                     "\n  fix: fetch the file again, or write the size of the .ds file divided by 2 (or 4) there");
  require<DataError>(found.num_tokens > 0, shown, ": 0 tokens; a data set must have at least one",
                     "\n  fix: prepare the data again, or remove this file's data set from the folder");
  next_line(metadata);  // human-readable count
  const std::string_view fingerprint = next_line(metadata);
  require<DataError>(fingerprint.empty() || is_fingerprint(fingerprint), shown, ": line 4 is ",
                     files::shown_name(fingerprint), "; it must be the tokenizer's fingerprint, 16 hexadecimal digits",
                     "\n  fix: prepare the data again, or remove the line: the tokenizer is then not checked");
  found.tokenizer.fingerprint = fingerprint;
  return found;
}

std::string datatrove_metadata_text(const DatatroveMetadata& metadata) {
  std::string out =
      text(metadata.tokenizer.name.empty() ? "Unknown Tokenizer" : metadata.tokenizer.name, "|",
           bytes_of(metadata.type), "\n", metadata.num_tokens, "\n", count_for_people(metadata.num_tokens));
  if (!metadata.tokenizer.fingerprint.empty()) out.append("\n").append(metadata.tokenizer.fingerprint);
  return out;
}

std::unique_ptr<TokenSource> open_datatrove(const std::filesystem::path& path) {
  const std::filesystem::path metadata_file = beside(path, ".metadata"), index_file = beside(path, ".index"),
                              loss_file = beside(path, ".loss");
  check_exists(metadata_file, path, "the number of tokens and their width");
  check_exists(index_file, path, "the ends of documents");
  const DatatroveMetadata metadata = read_metadata(metadata_file);
  FileTokens::Parts parts{.name = path.string(),
                          .format = "datatrove",
                          .tokens = open_tokens_of(path, metadata),
                          .ends = open_index(index_file, metadata.num_tokens),
                          .loss = std::nullopt,
                          .tokenizer = metadata.tokenizer};
  if (files::is_there(loss_file)) {
    parts.loss.emplace(loss_file);
    require<DataError>(parts.loss->size() == static_cast<std::uint64_t>(metadata.num_tokens), parts.loss->shown(), ": ",
                       parts.loss->size(), " bytes for ", metadata.num_tokens, " tokens; it must hold one for each",
                       "\n  fix: fetch the file again; this one is cut short or of other data");
  }
  return std::make_unique<FileTokens>(std::move(parts));
}

std::unique_ptr<TokenWriter> write_datatrove(std::filesystem::path path, TokenWriterOptions options) {
  if (path.extension() != ".ds") path += ".ds";
  return std::make_unique<DatatroveWriter>(path, std::move(options));
}

}  // namespace trireme::data
