#include "trireme/data/tokens/megatron_tokens.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/file_tokens.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::uint64_t kIndexHeaderBytes = 34;
constexpr std::string_view kAgain =
    "\n  fix: fetch the data again, or prepare it again; this index is damaged or of other tokens";

std::filesystem::path beside(const std::filesystem::path& prefix, std::string_view ending) {
  return prefix.string().append(ending);
}

TokenType token_type(std::uint8_t code, const std::string& shown) {
  switch (code) {
    case 1: return TokenType::u8;
    case 2: return TokenType::i8;
    case 3: return TokenType::i16;
    case 4: return TokenType::i32;
    case 5: return TokenType::i64;
    case 8: return TokenType::u16;
    default: break;
  }
  throw DataError(text(shown, ": tokens of type ", int{code}, code == 6 || code == 7 ? " (floating point)" : "",
                       "; read are 1 (u8), 2 (i8), 3 (i16), 4 (i32), 5 (i64) and 8 (u16)", kAgain));
}

/// The .idx file: the offsets of its three arrays, checked against its size before anything is read.
class Index {
 public:
  explicit Index(const std::filesystem::path& path) : file_(path) {
    require<DataError>(file_.size() >= kIndexHeaderBytes, shown(), ": ", file_.size(), " bytes; the header alone has ",
                       kIndexHeaderBytes, kAgain);
    std::array<std::byte, kIndexHeaderBytes> header;
    file_.read(0, header);
    require<DataError>(std::equal(kMagic.begin(), kMagic.end(), reinterpret_cast<const char*>(header.data())), shown(),
                       ": does not begin with MMIDIDX and two zero bytes, as an index of Megatron does", kAgain);
    const auto version = files::little_endian_at<std::uint64_t>(&header[9]);
    require<DataError>(version != __builtin_bswap64(1), shown(),
                       ": written with the most significant byte first, on another kind of machine",
                       "\n  fix: prepare the data again on a machine like this one");
    require<DataError>(version == 1, shown(), ": version ", version, "; version 1 is read", kAgain);
    type_ = token_type(std::to_integer<std::uint8_t>(header[17]), shown());
    const auto sequences = files::little_endian_at<std::uint64_t>(&header[18]),
               marks = files::little_endian_at<std::uint64_t>(&header[26]);
    const std::uint64_t rest = file_.size() - kIndexHeaderBytes;
    // Division first: the sum may overflow 64 bits.
    const bool fits = sequences <= rest / 12 && marks <= (rest - 12 * sequences) / 8;
    const std::uint64_t left = fits ? rest - 12 * sequences - 8 * marks : 0;
    require<DataError>(fits && (left == 0 || left == sequences), shown(), ": ", file_.size(), " bytes; ", sequences,
                       " sequences and ", marks, " marks of documents, as its header says, do not have this size",
                       kAgain);
    require<DataError>(
        sequences > 0 && marks > 1, shown(), ": ", sequences, " sequences and ", marks,
        " marks of documents (one more than documents): there must be at least one document with a token",
        "\n  fix: prepare the data again");
    sequences_ = static_cast<std::int64_t>(sequences);
    documents_ = static_cast<std::int64_t>(marks) - 1;
    if (left != 0) check_kinds();
  }

  const std::string& shown() const { return file_.shown(); }
  TokenType type() const { return type_; }
  std::int64_t sequences() const { return sequences_; }
  std::int64_t documents() const { return documents_; }

  /// Validates all lengths and offsets; returns the number of tokens.
  std::int64_t check_sequences() const {
    constexpr std::int64_t kPart = 4096;
    const auto token_bytes = static_cast<std::int64_t>(bytes_of(type_));
    std::vector<std::int32_t> lengths(kPart);
    std::vector<std::int64_t> offsets(kPart);
    std::int64_t bytes = 0;
    for (std::int64_t first = 0; first < sequences_; first += kPart) {
      const auto count = static_cast<std::size_t>(std::min(kPart, sequences_ - first));
      file_.read_numbers(lengths_at(first), std::span(lengths).first(count));
      file_.read_numbers(offsets_at(first), std::span(offsets).first(count));
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t length = lengths[i];
        if (length < 0 || offsets[i] != bytes ||
            length > (std::numeric_limits<std::int64_t>::max() - bytes) / token_bytes)
          throw DataError(text(shown(), ": sequence ", first + static_cast<std::int64_t>(i), " has ", length,
                               " tokens and begins at byte ", offsets[i], " of the .bin file; it must begin at byte ",
                               bytes, ", where the one before ends, and its length must not be negative", kAgain));
        bytes += length * token_bytes;
      }
    }
    return bytes / token_bytes;
  }

  /// Validates all document indices.
  void check_marks() const {
    constexpr std::int64_t kPart = 4096;
    std::vector<std::int64_t> marks(kPart);
    std::int64_t previous = 0;
    for (std::int64_t first = 0; first <= documents_; first += kPart) {
      const auto part = std::span(marks).first(static_cast<std::size_t>(std::min(kPart, documents_ + 1 - first)));
      file_.read_numbers(marks_at(first), part);
      require<DataError>(first > 0 || part[0] == 0, shown(), ": the first document begins at sequence ", part[0],
                         "; it must begin at 0", kAgain);
      for (std::size_t i = 0; i < part.size(); ++i) {
        if (part[i] < previous || part[i] > sequences_)
          throw DataError(text(shown(), ": mark ", first + static_cast<std::int64_t>(i), " of documents is sequence ",
                               part[i], ", the one before ", previous, "; they must ascend, to at most ", sequences_,
                               " sequences", kAgain));
        previous = part[i];
      }
    }
    require<DataError>(previous == sequences_, shown(), ": the last of ", documents_, " documents ends with sequence ",
                       previous, " of ", sequences_, "; no sequence may stand outside a document", kAgain);
  }

  /// Document ends in tokens, from the document indices (in sequences) and the offsets (in bytes).
  void load_ends(std::int64_t first, std::span<std::int64_t> out, std::int64_t num_tokens) const {
    file_.read_numbers(marks_at(first + 1), out);
    const auto [low, high] = std::ranges::minmax(out);
    require<DataError>(low >= 0 && high <= sequences_, shown(), ": was changed while it was being read", kAgain);
    const auto token_bytes = static_cast<std::int64_t>(bytes_of(type_));
    // Nearly always one sequence per document: their offsets are contiguous, and one read gets them all.
    std::vector<std::int64_t> offsets;
    if (const std::int64_t span = std::min(high, sequences_ - 1) - low + 1;
        span > 0 && span <= 4 * IndexedEnds::kStride) {
      offsets.resize(static_cast<std::size_t>(span));
      file_.read_numbers(offsets_at(low), std::span(offsets));
    }
    for (std::int64_t& end : out) {
      std::int64_t offset = num_tokens * token_bytes;
      if (end < sequences_ && !offsets.empty())
        offset = offsets[static_cast<std::size_t>(end - low)];
      else if (end < sequences_)
        file_.read_numbers(offsets_at(end), std::span(&offset, 1));
      end = offset / token_bytes;
    }
  }

 private:
  static std::uint64_t times(std::int64_t count, std::uint64_t bytes) {
    return static_cast<std::uint64_t>(count) * bytes;
  }
  std::uint64_t lengths_at(std::int64_t i) const { return kIndexHeaderBytes + times(i, 4); }
  std::uint64_t offsets_at(std::int64_t i) const { return lengths_at(sequences_) + times(i, 8); }
  std::uint64_t marks_at(std::int64_t i) const { return offsets_at(sequences_) + times(i, 8); }

  void check_kinds() const {
    std::vector<std::byte> kinds(std::size_t{1} << 16);
    const std::uint64_t begin = marks_at(documents_ + 1);
    for (std::uint64_t at = begin; at < file_.size();) {
      const auto part =
          std::span(kinds).first(static_cast<std::size_t>(std::min<std::uint64_t>(kinds.size(), file_.size() - at)));
      file_.read(at, part);
      const auto other = std::ranges::find_if(part, [](std::byte kind) { return kind != std::byte{0}; });
      require<DataError>(other == part.end(), shown(), ": sequence ",
                         at - begin + static_cast<std::uint64_t>(other - part.begin()), " is not text (mode ",
                         other == part.end() ? 0 : std::to_integer<int>(*other),
                         "): multimodal data is not read\n  fix: prepare the text alone");
      at += part.size();
    }
  }

  files::RandomReader file_;
  TokenType type_{};
  std::int64_t sequences_ = 0, documents_ = 0;
};

class MegatronWriter : public TokenWriter {
 public:
  MegatronWriter(const std::filesystem::path& prefix, TokenWriterOptions options)
      : TokenWriter(prefix.string(), TokenFormat::megatron, std::move(options)),
        record_(beside(prefix, ".tokenizer")),
        // Megatron's own threshold: readers that derive the dtype from the vocabulary agree.
        type_(this->options().vocab_size < 65'500 ? TokenType::u16 : TokenType::i32),
        tokens_(files().add(beside(prefix, ".bin"))),
        tokenizer_(has_record() ? &files().add(record_) : nullptr),
        index_(files().add(beside(prefix, ".idx"))) {
    if (!has_record()) files().obsolete(record_);
    std::string header(kMagic);
    files::append_little_endian(header, std::uint64_t{1});
    files::append_little_endian(header, static_cast<std::uint8_t>(type_ == TokenType::u16 ? 8 : 4));
    files::append_little_endian(header, std::uint64_t{0});  // placeholder for both counts, written in complete()
    files::append_little_endian(header, std::uint64_t{0});
    index_.append(header);
  }

 private:
  bool has_record() const { return !options().tokenizer.name.empty() || !options().tokenizer.fingerprint.empty(); }

  void write(std::span<const std::uint32_t> ids, std::span<const std::uint8_t>) override {
    require<DataError>(std::in_range<std::int32_t>(ids.size()), shown(), ": document ", num_documents(), " has ",
                       ids.size(),
                       " tokens; Megatron's index has room for 2,147,483,647\n  fix: write the format datatrove");
    tokens_.append(encoded(ids, type_));
    const auto length = static_cast<std::int32_t>(ids.size());
    index_.append(files::little_endian_bytes(std::span(&length, 1)));
  }

  /// The offsets are computed from the lengths that are already in the file: no memory per document.
  void complete() override {
    const std::array<std::uint64_t, 2> counts = {static_cast<std::uint64_t>(num_documents()),
                                                 static_cast<std::uint64_t>(num_documents()) + 1};
    index_.overwrite(18, files::little_endian_bytes(std::span<const std::uint64_t>(counts)));
    constexpr std::int64_t kPart = 4096;
    std::vector<std::int32_t> lengths(kPart);
    std::int64_t offset = 0;
    std::string bytes;
    for (std::int64_t first = 0; first < num_documents(); first += kPart) {
      const auto part = std::span(lengths).first(static_cast<std::size_t>(std::min(kPart, num_documents() - first)));
      index_.read_back(kIndexHeaderBytes + static_cast<std::uint64_t>(first) * 4, std::as_writable_bytes(part));
      bytes.clear();
      for (const std::int32_t length : part) {
        files::append_little_endian(bytes, offset);
        offset += length * static_cast<std::int64_t>(bytes_of(type_));
      }
      index_.append(bytes);
    }
    for (std::int64_t mark = 0; mark <= num_documents(); ++mark)
      index_.append(files::little_endian_bytes(std::span(&std::as_const(mark), 1)));
    if (tokenizer_ != nullptr) tokenizer_->append(tokenizer_record_text(options().tokenizer, num_tokens()));
  }

  std::filesystem::path record_;
  TokenType type_;
  files::StagedFile& tokens_;
  files::StagedFile* tokenizer_;
  files::StagedFile& index_;
};

}  // namespace

std::unique_ptr<TokenSource> open_megatron(const std::filesystem::path& prefix) {
  for (const char* ending : {".idx", ".bin"})
    require<DataError>(files::is_there(beside(prefix, ending)), prefix.string(), ": there is no ", prefix.string(),
                       ending, "; Megatron's data is two files, .idx and .bin\n  fix: copy it here too");
  const auto index = std::make_shared<const Index>(beside(prefix, ".idx"));
  const std::int64_t num_tokens = index->check_sequences();
  index->check_marks();
  require<DataError>(num_tokens > 0, index->shown(), ": ", index->sequences(),
                     " sequences without a token: an empty data set", "\n  fix: prepare the data again");
  files::RandomReader bin(beside(prefix, ".bin"));
  const std::uint64_t wanted = static_cast<std::uint64_t>(num_tokens) * bytes_of(index->type());
  require<DataError>(bin.size() == wanted, bin.shown(), ": ", bin.size(), " bytes, but its index has ", num_tokens,
                     " tokens of type ", name(index->type()), ", which are ", wanted,
                     "\n  fix: fetch the file again; this one is cut short or of another index");
  auto tokens = std::make_shared<const TokenArray>(std::move(bin), 0, index->type(), num_tokens);
  const auto load = [index, num_tokens](std::int64_t first, std::span<std::int64_t> out) {
    index->load_ends(first, out, num_tokens);
  };
  return std::make_unique<FileTokens>(
      FileTokens::Parts{.name = prefix.string(),
                        .format = "megatron",
                        .tokens = std::move(tokens),
                        .ends = std::make_unique<IndexedEnds>(index->documents(), num_tokens, load, index->shown()),
                        .loss = std::nullopt,
                        .tokenizer = read_tokenizer_record(beside(prefix, ".tokenizer"), num_tokens)});
}

std::unique_ptr<TokenWriter> write_megatron(std::filesystem::path path, TokenWriterOptions options) {
  if (path.extension() == ".idx" || path.extension() == ".bin") path.replace_extension();
  return std::make_unique<MegatronWriter>(path, std::move(options));
}

}  // namespace trireme::data
