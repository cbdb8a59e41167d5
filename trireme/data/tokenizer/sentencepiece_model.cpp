#include "trireme/data/tokenizer/sentencepiece_model.hpp"

#include <algorithm>
#include <bitset>
#include <unordered_set>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/byte_fallback.hpp"
#include "trireme/data/tokenizer/protobuf.hpp"
#include "trireme/files/shown_name.hpp"

// The numbers of fields are those of sentencepiece_model.proto. Fields that do not matter here (how the model was
// trained, tests of it) are skipped, as any reader of the format does.

namespace trireme::data {
namespace {

using Kind = SentencePieceFile::Kind;

[[noreturn]] void refuse_model(const std::string& name, std::string_view what) {
  throw DataError(
      text(name, ": ", what, " is not supported\n  fix: another tokenizer, or the text tokenized by another program"));
}

SentencePieceFile::Piece read_piece(ProtobufReader in) {
  SentencePieceFile::Piece piece;
  while (in.next()) {
    if (in.field() == 1) piece.text = in.bytes();
    if (in.field() == 2) piece.score = in.number();
    if (in.field() == 3) {
      if (in.integer() < 1 || in.integer() > 6) in.fail(text("there is no type of pieces ", in.integer()));
      piece.kind = static_cast<Kind>(in.integer());
    }
  }
  return piece;
}

void read_trainer(ProtobufReader in, SentencePieceFile& file, const std::string& name) {
  while (in.next()) switch (in.field()) {
      case 3:
        if (in.integer() == 3 || in.integer() == 4)
          refuse_model(name, in.integer() == 3 ? "a model of words" : "a model of characters");
        if (in.integer() != 1 && in.integer() != 2) in.fail(text("there is no type of models ", in.integer()));
        file.algorithm = static_cast<SentencePieceFile::Algorithm>(in.integer());
        break;
      case 24: file.space_as_suffix = in.flag(); break;
      case 35: file.byte_fallback = in.flag(); break;
      case 44: file.unknown_text = in.bytes(); break;
      case 47:
        if (!in.bytes().empty()) file.end_piece = in.bytes();
        break;
      default: break;
    }
}

void read_normalizer(ProtobufReader in, SentencePieceFile& file) {
  while (in.next()) switch (in.field()) {
      case 2: file.charsmap = in.bytes(); break;
      case 3: file.dummy_prefix = in.flag(); break;
      case 4: file.remove_extra_space = in.flag(); break;
      case 5: file.escape_space = in.flag(); break;
      default: break;
    }
}

void refuse_denormalizer(ProtobufReader in, const std::string& name) {
  while (in.next())
    if (in.field() == 2 && !in.bytes().empty()) refuse_model(name, "rules for decoding (denormalizer_spec)");
}

void check_pieces(const SentencePieceFile& file, const std::string& name) {
  constexpr std::size_t kLongest = 8000;  // as in the reference
  require<DataError>(!file.pieces.empty(), name, " has no pieces\n  fix: is it a SentencePiece model?");
  std::unordered_set<std::string_view> seen;
  std::bitset<256> bytes;
  for (std::size_t id = 0; id < file.pieces.size(); ++id) {
    const auto& [piece, score, kind] = file.pieces[id];
    const std::string place = text(name, ": piece ", id, " (", files::shown_name(piece), ") ");
    require<DataError>(!piece.empty() && piece.size() < kLongest, place, "has ", piece.size(), " bytes; 1 to ",
                       kLongest - 1, " are allowed");
    require<DataError>(piece.find('\0') == std::string::npos, place, "has a NUL");
    require<DataError>(seen.insert(piece).second, place, "is there twice");
    if (kind != Kind::byte) continue;
    const auto byte = fallback_byte(piece);
    require<DataError>(byte.has_value(), place, "is of the type of bytes, but not one of <0x00> ... <0xFF>");
    require<DataError>(file.byte_fallback, place, "is a byte, but byte_fallback is not set");
    bytes.set(*byte);
  }
  require<DataError>(!file.byte_fallback || bytes.all(), name, ": byte_fallback is set, but only ", bytes.count(),
                     " of 256 bytes have a piece");
  const auto unknown = std::ranges::count(file.pieces, Kind::unknown, &SentencePieceFile::Piece::kind);
  require<DataError>(unknown == 1, name, ": ", unknown, " pieces are of the type unknown; exactly one must be");
  if (file.algorithm == SentencePieceFile::Algorithm::bpe)
    for (const SentencePieceFile::Piece& piece : file.pieces)
      if (piece.kind == Kind::unused)
        refuse_model(name, text("a piece of the type unused (", files::shown_name(piece.text), ") in a BPE model"));
}

/// Llama 3's file of this name: lines of base64 and rank.
bool looks_like_tiktoken(std::string_view bytes) {
  const std::string_view line = bytes.substr(0, std::min(bytes.find('\n'), bytes.size()));
  return line.size() < 200 && line.find("== ") != std::string_view::npos;
}

}  // namespace

std::size_t SentencePieceFile::unknown() const {
  return static_cast<std::size_t>(std::ranges::find(pieces, Kind::unknown, &Piece::kind) - pieces.begin());
}

SentencePieceFile read_sentencepiece(std::string_view proto, const std::string& name) {
  require<DataError>(!looks_like_tiktoken(proto), name,
                     " has lines of base64, as Llama 3's own file, which does not name the special tokens\n  fix: the "
                     "tokenizer.json of the model; or rename it to NAME.llama3.tiktoken, to have no special tokens");
  SentencePieceFile file;
  ProtobufReader in(proto, name);
  while (in.next()) switch (in.field()) {
      case 1: file.pieces.push_back(read_piece(in.message())); break;
      case 2: read_trainer(in.message(), file, name); break;
      case 3: read_normalizer(in.message(), file); break;
      case 5: refuse_denormalizer(in.message(), name); break;
      default: break;
    }
  check_pieces(file, name);
  return file;
}

}  // namespace trireme::data
