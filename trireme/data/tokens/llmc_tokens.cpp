#include "trireme/data/tokens/llmc_tokens.hpp"

#include <array>
#include <limits>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/file_tokens.hpp"

namespace trireme::data {
namespace {

constexpr std::uint64_t kHeaderBytes = 1024;
using Header = std::array<std::int32_t, 256>;

struct Kind {
  std::int32_t magic, version;
  TokenType type;
};
constexpr std::array<Kind, 2> kKinds = {{{20240520, 1, TokenType::u16}, {20240801, 7, TokenType::u32}}};

const Kind& kind_of(const Header& header, const std::string& shown) {
  for (const Kind& kind : kKinds) {
    require<DataError>(
        header[0] != static_cast<std::int32_t>(__builtin_bswap32(static_cast<std::uint32_t>(kind.magic))), shown,
        ": written with the most significant byte first, on another kind of machine",
        "\n  fix: prepare the data again on a machine like this one");
    if (header[0] != kind.magic) continue;
    require<DataError>(header[1] == kind.version, shown, ": magic number ", kind.magic, " with version ", header[1],
                       "; version ", kind.version, " is read\n  fix: prepare the data again with the llm.c of today");
    return kind;
  }
  throw DataError(
      text(shown, ": begins with ", header[0], "; a token file of llm.c begins with 20240520 or 20240801",
           "\n  fix: if it is Megatron's, copy its .idx file here too; if it is nanoGPT's, prepare the data again"));
}

class LlmcWriter : public TokenWriter {
 public:
  LlmcWriter(const std::filesystem::path& path, TokenWriterOptions options)
      : TokenWriter(path.string(), TokenFormat::llmc, std::move(options)),
        record_(std::filesystem::path(path).replace_extension(".tokenizer")),
        kind_(kKinds[this->options().vocab_size <= 65'536 ? 0 : 1]),
        tokens_(files().add(path)) {
    tokens_.append(std::string(kHeaderBytes, '\0'));
  }

 private:
  void write(std::span<const std::uint32_t> ids, std::span<const std::uint8_t>) override {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    require<DataError>(
        num_tokens() + static_cast<std::int64_t>(ids.size()) <= kMost, shown(), ": more than ", kMost,
        " tokens, which a file of llm.c cannot hold\n  fix: write several files, or the format datatrove");
    tokens_.append(encoded(ids, kind_.type));
  }

  void complete() override {
    const std::array<std::int32_t, 3> header = {kind_.magic, kind_.version, static_cast<std::int32_t>(num_tokens())};
    tokens_.overwrite(0, files::little_endian_bytes(std::span<const std::int32_t>(header)));
    const TokenizerRecord& tokenizer = options().tokenizer;
    if (tokenizer.name.empty() && tokenizer.fingerprint.empty())
      files().obsolete(record_);
    else
      files().add(record_).append(tokenizer_record_text(tokenizer, num_tokens()));
  }

  std::filesystem::path record_;
  const Kind& kind_;
  files::StagedFile& tokens_;
};

}  // namespace

std::unique_ptr<TokenSource> open_llmc(const std::filesystem::path& path, std::optional<std::uint32_t> document_end) {
  files::RandomReader file(path);
  require<DataError>(file.size() >= kHeaderBytes, file.shown(), ": ", file.size(), " bytes; the header alone has ",
                     kHeaderBytes, "\n  fix: fetch the file again; this one is cut short or not a token file of llm.c");
  Header header;
  file.read_numbers(0, std::span<std::int32_t>(header));
  const Kind& kind = kind_of(header, file.shown());
  const std::int64_t count = header[2];
  require<DataError>(count > 0, file.shown(), ": ", count, " tokens by its header; there must be at least one",
                     "\n  fix: prepare the data again");
  const std::uint64_t wanted = kHeaderBytes + static_cast<std::uint64_t>(count) * bytes_of(kind.type);
  require<DataError>(file.size() == wanted, file.shown(), ": ", file.size(), " bytes, but ", count, " tokens of ",
                     bytes_of(kind.type), " bytes and the header have ", wanted,
                     "\n  fix: fetch the file again; this one is cut short or damaged");
  auto tokens = std::make_shared<const TokenArray>(std::move(file), kHeaderBytes, kind.type, count);
  auto ends = std::make_unique<MarkedEnds>(tokens, document_end);
  return std::make_unique<FileTokens>(FileTokens::Parts{
      .name = path.string(),
      .format = "llmc",
      .tokens = std::move(tokens),
      .ends = std::move(ends),
      .loss = std::nullopt,
      .tokenizer = read_tokenizer_record(std::filesystem::path(path).replace_extension(".tokenizer"), count)});
}

std::unique_ptr<TokenWriter> write_llmc(std::filesystem::path path, TokenWriterOptions options) {
  if (path.extension() != ".bin") path += ".bin";
  return std::make_unique<LlmcWriter>(path, std::move(options));
}

}  // namespace trireme::data
