#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/byte_alphabet.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"
#include "trireme/files/shown_name.hpp"

// Lines of "BASE64 RANK". Pre-tokenizer and special tokens are not in the file: both are derived from its name.

namespace trireme::data {
namespace {

std::string from_base64(std::string_view in, const std::string& place) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto fail = [&] { throw DataError(text(place, ": ", files::shown_name(in), " is not base64")); };
  if (in.size() % 4 != 0 || in.empty()) fail();
  std::string out;
  for (std::size_t i = 0; i < in.size(); i += 4) {
    std::uint32_t bits = 0;
    int padding = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const char c = in[i + k];
      const std::size_t digit = kDigits.find(c);
      if (c == '=' && i + 4 == in.size() && k >= 2)
        ++padding;
      else if (digit == std::string_view::npos || padding > 0)
        fail();
      bits = bits << 6 | static_cast<std::uint32_t>(digit == std::string_view::npos ? 0 : digit);
    }
    for (int k = 0; k < 3 - padding; ++k) out += static_cast<char>(bits >> (16 - 8 * k) & 0xFF);
  }
  return out;
}

// Words end where an upper-case letter follows a lower-case one; contractions stay with their words.
constexpr std::string_view kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Family {
  const char* name;  // substring of the file name
  std::string_view pattern;
  std::vector<std::pair<const char*, TokenId>> specials;  // {} : <|endoftext|> after the last token
};

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {"gpt2", kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"r50k", kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"p50k", kGpt2Pattern, {{"<|endoftext|>", 50256}}},
      {"cl100k",
       kLlama3Pattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}}},
      {"o200k", kO200kPattern, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
      {"qwen", kQwen2Pattern, {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}}},
      {"llama3", kLlama3Pattern, {}},
  };
  return all;
}

const Family& family_of(const std::string& name) {
  const std::string file = std::filesystem::path(name).filename().string();
  const auto found = std::ranges::find_if(
      families(), [&](const Family& family) { return file.find(family.name) != std::string::npos; });
  if (found != families().end()) return *found;
  std::string known;
  for (const Family& family : families()) known += text(known.empty() ? "" : ", ", family.name);
  throw DataError(text(name, ": the file does not say how text is cut into words, and its name does not either",
                       "\n  fix: a name with one of ", known, ", such as mine.llama3.tiktoken; or a tokenizer.json"));
}

/// Every way to build a token from two others is a merge, with the token's rank.
void add_merges(Tokenizer::Parts& parts, const std::vector<std::pair<std::string, TokenId>>& tokens) {
  std::vector<Merge> merges;
  std::vector<std::uint32_t> ranks;
  constexpr std::size_t kLongest = 1024;  // the cost is quadratic in the token length
  for (const auto& [bytes, rank] : tokens) {
    require<DataError>(bytes.size() <= kLongest, parts.name, ": token ", rank, " has ", bytes.size(),
                       " bytes; at most ", kLongest, " are allowed");
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = parts.model.words.find(std::string_view(bytes).substr(0, cut));
      if (left == parts.model.words.end()) continue;
      const auto right = parts.model.words.find(std::string_view(bytes).substr(cut));
      if (right == parts.model.words.end()) continue;
      merges.push_back({left->second, right->second, rank});
      ranks.push_back(rank);
    }
  }
  parts.model.merges = MergeTable(merges, ranks);
}

/// Shared by byte-level tokenizers without a tokenizer.json: words by `pattern`, tokens that are bytes, special tokens.
std::unique_ptr<Tokenizer::Parts> byte_level_parts(const std::string& name, std::string_view pattern,
                                                   const std::vector<std::pair<std::string, TokenId>>& tokens,
                                                   const std::vector<std::pair<const char*, TokenId>>& specials) {
  auto parts = std::make_unique<Tokenizer::Parts>();
  parts->name = name;
  parts->expect_tokens(tokens.size());
  if (specials.back().second < 1'000'000)  // of known models, above the ranks
    parts->most_tokens = std::max<std::size_t>(parts->most_tokens, specials.back().second + 1);
  std::string identity = text(pattern, '\n');
  for (const auto& [bytes, id] : tokens) {
    parts->set_text(id, spelt_as_characters(bytes));
    parts->model.words.emplace(bytes, id);
    if (bytes.size() == 1) parts->model.byte_ids[static_cast<unsigned char>(bytes[0])] = id;
  }
  std::vector<AddedToken> added;
  for (const auto& [content, id] : specials) {
    parts->set_text(id, content);
    added.push_back({.id = id, .content = content, .special = true});
  }
  for (int byte = 0; byte < 256; ++byte)
    require<DataError>(parts->model.byte_ids[static_cast<std::size_t>(byte)] != kNoToken, name,
                       ": no token for the byte ", byte,
                       "; text with it would be lost\n  fix: the file is damaged, fetch it again");
  parts->decoding.bytes = parts->texts;
  parts->special.assign(parts->texts.size(), false);
  for (const auto& [bytes, id] : tokens) parts->decoding.bytes[id] = bytes;
  for (const AddedToken& token : added) parts->special[token.id] = true;
  for (const std::string& token : parts->texts) identity += token + '\n';
  parts->end_of_document = std::nullopt;
  for (const char* end : {"<|endoftext|>", "<|end_of_text|>"})
    if (const auto found = parts->ids.find(end); found != parts->ids.end()) parts->end_of_document = found->second;
  parts->added = AddedTokenFinder(std::move(added));
  parts->model.byte_level = true;
  parts->model.whole_words_first = true;
  parts->fast = known_pattern(pattern);
  if (!pattern.empty()) parts->pre_tokenizers.emplace_back(SplitText{Pattern(pattern), SplitBehavior::isolated, false});
  parts->fingerprint = hash_text(identity);
  return parts;
}

}  // namespace

std::unique_ptr<Tokenizer::Parts> parts_of_tiktoken_text(std::string_view lines, const std::string& name) {
  std::vector<std::pair<std::string, TokenId>> tokens;
  TokenId behind_last = 0;
  std::size_t number = 0;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    const std::string place = text(name, ':', ++number);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    require<DataError>(space != std::string_view::npos, place, ": ", files::shown_name(line),
                       " is not a token and its rank with a space between");
    TokenId rank = 0;
    const char* last = line.data() + line.size();
    const auto read = std::from_chars(line.data() + space + 1, last, rank);
    require<DataError>(read.ec == std::errc() && read.ptr == last, place, ": ",
                       files::shown_name(line.substr(space + 1)), " is not a rank");
    tokens.emplace_back(from_base64(line.substr(0, space), place), rank);
    behind_last = std::max(behind_last, rank + 1);
  }
  require<DataError>(!tokens.empty(), name, " has no tokens");
  const Family& family = family_of(name);
  auto specials = family.specials;
  if (specials.empty()) specials = {{"<|endoftext|>", behind_last}};
  auto parts = byte_level_parts(name, family.pattern, tokens, specials);
  add_merges(*parts, tokens);
  return parts;
}

std::unique_ptr<Tokenizer::Parts> parts_of_tiktoken(const std::filesystem::path& file) {
  return parts_of_tiktoken_text(tokenizer_file_text(file), file.string());
}

std::unique_ptr<Tokenizer::Parts> parts_of_bytes() {
  std::vector<std::pair<std::string, TokenId>> tokens;
  for (int byte = 0; byte < 256; ++byte)
    tokens.emplace_back(std::string(1, static_cast<char>(byte)), static_cast<TokenId>(byte));
  return byte_level_parts("bytes", "", tokens, {{"<|endoftext|>", 256}});
}

}  // namespace trireme::data
