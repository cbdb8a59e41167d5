#include "trireme/data/tokenizer/tokenizer_json_models.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "trireme/data/tokenizer/byte_alphabet.hpp"

namespace trireme::data {
namespace {

/// The two halves of a merge, written as "a b" or ["a", "b"].
std::pair<std::string, std::string> halves(const JsonView& merge) {
  if (merge.value().is_array()) {
    if (merge.list_size() != 2) merge.fail("is not a pair");
    return {merge.at(std::size_t{0}).string(), merge.at(1).string()};
  }
  const std::string& both = merge.string();
  const std::size_t space = both.find(' ');
  if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
    merge.fail("is not two tokens with a space between");
  return {both.substr(0, space), both.substr(space + 1)};
}

void read_vocabulary(const JsonView& vocab, Tokenizer::Parts& parts) {
  if (!vocab.value().is_object()) vocab.fail("is not an object of tokens and their numbers");
  parts.expect_tokens(vocab.value().size());
  for (const auto& item : vocab.value().items())
    parts.set_text(JsonView(item.value(), vocab.place() + "." + files::shown_name(item.key())).number(), item.key());
}

MergeTable read_merges(const JsonView& merges, const Tokenizer::Parts& parts, std::string& identity) {
  std::vector<Merge> list;
  std::vector<std::uint32_t> ranks;
  for (std::size_t i = 0; i < merges.list_size(); ++i) {
    const JsonView merge = merges.at(i);
    const auto [left, right] = halves(merge);
    const auto id_of = [&](const std::string& token) {
      const auto found = parts.ids.find(token);
      if (found == parts.ids.end())
        merge.fail(text("speaks of ", files::shown_name(token), ", which is not in the vocabulary"));
      return found->second;
    };
    list.push_back({id_of(left), id_of(right), id_of(left + right)});
    ranks.push_back(static_cast<std::uint32_t>(i));
    identity += text(list.back().left, ' ', list.back().right, '\n');  // independent of the notation in the file
  }
  return {list, ranks};
}

TokenId token_in_vocabulary(const JsonView& name, const Tokenizer::Parts& parts) {
  const auto found = parts.ids.find(name.string());
  if (found == parts.ids.end()) name.fail("is not in the vocabulary");
  return found->second;
}

ByteFallbacks fallbacks_in(const Tokenizer::Parts& parts) {
  ByteFallbacks out;
  for (const auto& [spelling, id] : parts.ids)
    if (const auto byte = fallback_byte(spelling)) out.set(*byte, id);
  return out;
}

BpeModel read_bpe(const JsonView& model, Tokenizer::Parts& parts, bool byte_level, std::string& identity) {
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout") && model.at("dropout").value() != 0) model.at("dropout").not_done("dropout of merges");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.string_or(affix, "").empty()) model.at(affix).not_done("a mark at the borders of words");

  read_vocabulary(model.at("vocab"), parts);
  BpeModel bpe;
  bpe.merges = read_merges(model.at("merges"), parts, identity);
  bpe.byte_level = byte_level;
  bpe.byte_fallback = model.flag("byte_fallback", false);
  bpe.whole_words_first = model.flag("ignore_merges", false);
  bpe.fuse_unknown = model.flag("fuse_unk", false);
  if (model.has("unk_token")) bpe.unknown = token_in_vocabulary(model.at("unk_token"), parts);
  if (byte_level && bpe.byte_fallback)
    model.at("byte_fallback").not_done("byte_fallback behind the pre-tokenizer ByteLevel");
  bpe.fallbacks = fallbacks_in(parts);
  for (const auto& [spelling, id] : parts.ids) {
    if (!byte_level) {
      bpe.words.emplace(spelling, id);
    } else if (const auto bytes = bytes_of_spelling(spelling)) {
      bpe.words.emplace(*bytes, id);
      if (bytes->size() == 1) bpe.byte_ids[static_cast<unsigned char>((*bytes)[0])] = id;
    }
  }
  identity += text(bpe.byte_level, bpe.byte_fallback, bpe.whole_words_first, bpe.fuse_unknown,
                   bpe.unknown.value_or(kNoToken), '\n');
  return bpe;
}

/// A score as the reference reads it: all digits as one integer, divided by a power of ten, each rounded. The last bit
/// may differ from the nearest double, and decides between cuts of a word that are equally good.
double read_by_reference(double score) {
  std::array<char, 32> digits{};  // 17 at most, a point, and the exponent
  const char* end =
      std::to_chars(digits.data(), digits.data() + digits.size(), std::abs(score), std::chars_format::scientific).ptr;
  const char* mark = std::find(static_cast<const char*>(digits.data()), end, 'e');
  std::uint64_t whole = 0;
  int power = 0;
  std::from_chars(mark + (mark[1] == '+' ? 2 : 1), end, power);
  for (const char* at = digits.data(); at != mark; ++at) {
    if (*at == '.') continue;
    whole = whole * 10 + static_cast<std::uint64_t>(*at - '0');
    if (at != digits.data()) --power;
  }
  constexpr int kLargestPower = 308;
  double out = static_cast<double>(whole);
  if (power < -kLargestPower) {
    out /= 1e308;
    power += kLargestPower;
  }
  const double ten = std::stod("1e" + std::to_string(std::abs(power)));  // exactly as the compiler reads 1e300
  return std::copysign(power < 0 ? out / ten : out * ten, score);
}

/// "vocab" is a list of tokens and their scores; the place in it is the id.
UnigramModel read_unigram(const JsonView& model, Tokenizer::Parts& parts, std::string& identity) {
  model.only({"type", "unk_id", "vocab", "byte_fallback"});
  const JsonView vocab = model.at("vocab");
  UnigramModel unigram;
  parts.expect_tokens(vocab.list_size());
  double lowest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < vocab.list_size(); ++i) {
    const JsonView entry = vocab.at(i);
    if (entry.list_size() != 2 || !entry.at(1).value().is_number()) entry.fail("is not a token and its score");
    const std::string token = entry.at(std::size_t{0}).string();
    if (token.empty()) entry.fail("is an empty token");
    const double score = read_by_reference(entry.at(1).value().get<double>());
    parts.set_text(static_cast<TokenId>(i), token);
    unigram.pieces.add(token, static_cast<TokenId>(i));
    unigram.scores.push_back(score);
    lowest = std::min(lowest, score);
    identity += text(std::bit_cast<std::uint64_t>(score), '\n');
  }
  if (model.has("unk_id")) {
    const TokenId unknown = model.at("unk_id").number();
    if (unknown >= unigram.scores.size())
      model.at("unk_id").fail(text("is ", unknown, ", outside the vocabulary (", unigram.scores.size(), ')'));
    unigram.unknown = unknown;
  }
  constexpr double kPenalty = 10;
  unigram.unknown_score = lowest - kPenalty;
  unigram.byte_fallback = model.flag("byte_fallback", false);
  unigram.fallbacks = fallbacks_in(parts);
  identity += text("unigram ", unigram.byte_fallback, ' ', unigram.unknown.value_or(kNoToken), '\n');
  return unigram;
}

WordPieceModel read_wordpiece(const JsonView& model, Tokenizer::Parts& parts, std::string& identity) {
  model.only({"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  read_vocabulary(model.at("vocab"), parts);
  ByteTrie tokens;
  for (const auto& [spelling, id] : parts.ids)
    if (!spelling.empty()) tokens.add(spelling, id);
  const std::string prefix = model.string_or("continuing_subword_prefix", "##");
  const std::size_t longest =
      model.has("max_input_chars_per_word") ? model.at("max_input_chars_per_word").number() : 100;
  const TokenId unknown = token_in_vocabulary(model.at("unk_token"), parts);
  identity += text("wordpiece ", prefix, ' ', longest, ' ', unknown, '\n');
  return {std::move(tokens), prefix, unknown, longest};
}

}  // namespace

void read_model(const JsonView& model, Tokenizer::Parts& parts, bool byte_level, std::string& identity) {
  const std::string type = model.string_or("type", "BPE");
  if (byte_level && (type == "Unigram" || type == "WordPiece"))
    model.not_done(text("the pre-tokenizer ByteLevel before the type ", type));
  if (type == "BPE")
    parts.model = read_bpe(model, parts, byte_level, identity);
  else if (type == "Unigram")
    parts.model = read_unigram(model, parts, identity);
  else if (type == "WordPiece")
    parts.model = read_wordpiece(model, parts, identity);
  else
    model.not_done(text("the type ", files::shown_name(type)));
}

}  // namespace trireme::data
