#include <algorithm>
#include <bit>
#include <limits>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/data/tokenizer/sentencepiece_model.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

// Makes a tokenizer of a SentencePiece .model file.

namespace trireme::data {
namespace {

using Kind = SentencePieceFile::Kind;
using Algorithm = SentencePieceFile::Algorithm;

SentencePieceNormalizer normalizer_of(const SentencePieceFile& file, const ByteTrie& user_defined,
                                      const std::string& name) {
  SentencePieceNormalizer out;
  if (!file.charsmap.empty()) out.rules.emplace(file.charsmap, name + ": precompiled_charsmap");
  out.user_defined = user_defined;
  out.dummy_prefix = file.dummy_prefix;
  out.space_as_suffix = file.space_as_suffix;
  out.remove_extra_space = file.remove_extra_space;
  out.escape_space = file.escape_space;
  return out;
}

ByteFallbacks fallbacks_of(const SentencePieceFile& file) {
  ByteFallbacks out;
  for (TokenId id = 0; id < file.pieces.size(); ++id)
    if (file.pieces[id].kind == Kind::byte) out.set(*fallback_byte(file.pieces[id].text), id);
  return out;
}

SentencePieceBpe bpe_of(const SentencePieceFile& file, const ByteTrie& user_defined, const std::string& name) {
  std::vector<SentencePieceBpe::Piece> pieces;
  for (TokenId id = 0; id < file.pieces.size(); ++id)
    if (file.pieces[id].kind == Kind::normal) pieces.push_back({file.pieces[id].text, id, file.pieces[id].score});
  SentencePieceBpe out(std::move(pieces), user_defined, static_cast<TokenId>(file.pieces.size()), name);
  out.unknown = static_cast<TokenId>(file.unknown());
  out.fallbacks = fallbacks_of(file);
  out.byte_fallback = file.byte_fallback;
  return out;
}

UnigramModel unigram_of(const SentencePieceFile& file, const std::string& name) {
  UnigramModel out;
  out.reference = UnigramModel::Reference::sentencepiece;
  out.scores.resize(file.pieces.size());
  float lowest = std::numeric_limits<float>::max();
  for (TokenId id = 0; id < file.pieces.size(); ++id) {
    const auto& [piece, score, kind] = file.pieces[id];
    if (kind == Kind::normal) lowest = std::min(lowest, score);
    // A symbol of the user's is always preferred to the pieces that it could be cut into, whose scores are negative.
    out.scores[id] =
        kind == Kind::user_defined ? static_cast<float>(0.1 * (static_cast<double>(piece.size()) - 1)) : score;
    if (kind == Kind::normal || kind == Kind::user_defined) out.pieces.add(piece, id);
  }
  require<DataError>(!out.pieces.empty(), name, ": no piece of a unigram model can be found in a text");
  constexpr float kPenalty = 10;
  out.unknown_score = lowest - kPenalty;
  out.unknown = static_cast<TokenId>(file.unknown());
  out.fallbacks = fallbacks_of(file);
  out.byte_fallback = file.byte_fallback;
  return out;
}

/// Whether a mark can only begin a piece: then nothing is merged across the beginning of a word, and words can be
/// looked up in the cache.
bool marks_begin_pieces(const SentencePieceFile& file) {
  const auto is_mark = [](const SentencePieceFile::Piece& piece) {
    return piece.kind == Kind::normal && piece.text == kSpaceMark;
  };
  return std::ranges::any_of(file.pieces, is_mark) &&
         std::ranges::none_of(file.pieces, [](const SentencePieceFile::Piece& piece) {
           std::string_view rest = piece.text;
           while (rest.starts_with(kSpaceMark)) rest.remove_prefix(kSpaceMark.size());
           return rest.find(kSpaceMark) != std::string_view::npos ||
                  (piece.kind == Kind::user_defined && piece.text.find(kSpaceMark) != std::string::npos);
         });
}

std::string replaced_marks(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const bool mark = piece.starts_with(kSpaceMark);
    out += mark ? ' ' : piece[0];
    piece.remove_prefix(mark ? kSpaceMark.size() : 1);
  }
  return out;
}

/// Leading marks are removed: all of them where extra spaces are removed, else the one of the dummy prefix.
Decoding decoding_of(const SentencePieceFile& file) {
  Decoding out;
  const bool strips = file.dummy_prefix || file.remove_extra_space;
  out.leading = file.remove_extra_space ? Decoding::Leading::until_text : Decoding::Leading::until_stripped;
  for (const auto& [piece, score, kind] : file.pieces) {
    const bool is_text = kind == Kind::normal || kind == Kind::user_defined || kind == Kind::unused;
    std::string bytes = replaced_marks(piece);
    if (kind == Kind::control) bytes.clear();
    if (kind == Kind::unknown) bytes = file.unknown_text;
    if (kind == Kind::byte) bytes.assign(1, static_cast<char>(*fallback_byte(piece)));
    if (strips) out.first_bytes.push_back(is_text && piece.starts_with(kSpaceMark) ? bytes.substr(1) : bytes);
    out.bytes.push_back(std::move(bytes));
  }
  return out;
}

std::string identity_of(const SentencePieceFile& file) {
  std::string out = text("sentencepiece ", static_cast<int>(file.algorithm), file.byte_fallback, file.space_as_suffix,
                         file.dummy_prefix, file.remove_extra_space, file.escape_space, '\n', file.charsmap, '\n');
  for (const auto& [piece, score, kind] : file.pieces)
    out += text(static_cast<int>(kind), ' ', std::bit_cast<std::uint32_t>(score), ' ', piece, '\n');
  return out;
}

/// Tokens that a model folder adds to its tokenizer.model are in another file, with rules that are in none.
void refuse_more_tokens(const std::filesystem::path& file, const Tokenizer::Parts& parts) {
  const std::filesystem::path more = file.parent_path() / "added_tokens.json";
  if (file.filename() != "tokenizer.model" || !std::filesystem::exists(more)) return;
  const nlohmann::json tokens = JsonView::parsed(tokenizer_file_text(more), more.string());
  for (const auto& item : tokens.items())
    require<DataError>(
        parts.ids.contains(item.key()), more.string(), " adds the token ", files::shown_name(item.key()),
        ", which is not in ", parts.name,
        "\n  fix: a tokenizer.json of this model, as transformers writes it; or a copy of the .model file "
        "elsewhere, to do without added tokens");
}

}  // namespace

std::unique_ptr<Tokenizer::Parts> parts_of_sentencepiece_bytes(std::string_view proto, const std::string& name) {
  const SentencePieceFile file = read_sentencepiece(proto, name);
  auto parts = std::make_unique<Tokenizer::Parts>();
  parts->name = name;
  parts->expect_tokens(file.pieces.size());
  ByteTrie user_defined;
  std::vector<AddedToken> control;
  for (TokenId id = 0; id < file.pieces.size(); ++id) {
    const auto& [piece, score, kind] = file.pieces[id];
    parts->set_text(id, piece);
    parts->special.push_back(kind == Kind::control);
    if (kind == Kind::user_defined) user_defined.add(piece, id);
    if (kind == Kind::control) control.push_back({.id = id, .content = piece, .special = true});
    if (kind == Kind::control && piece == file.end_piece) parts->end_of_document = id;
  }
  parts->added = AddedTokenFinder(std::move(control));
  parts->special_is_text = true;
  parts->normalizers.emplace_back(normalizer_of(file, user_defined, name));
  if (file.algorithm == Algorithm::bpe) {
    if (marks_begin_pieces(file)) parts->pre_tokenizers.emplace_back(SplitBeforeMarks{});
    parts->model = bpe_of(file, user_defined, name);
  } else {
    parts->model = unigram_of(file, name);
  }
  parts->decoding = decoding_of(file);
  parts->fingerprint = hash_text(identity_of(file));
  return parts;
}

std::unique_ptr<Tokenizer::Parts> parts_of_sentencepiece(const std::filesystem::path& file) {
  auto parts = parts_of_sentencepiece_bytes(tokenizer_file_text(file), file.string());
  refuse_more_tokens(file, *parts);
  if (const auto end = configured_end(file, *parts)) parts->end_of_document = end;
  return parts;
}

}  // namespace trireme::data
