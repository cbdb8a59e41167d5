#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/base64.hpp"
#include "trireme/data/tokenizer/byte_level_parts.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"
#include "trireme/files/shown_name.hpp"

// Lines of "BASE64 RANK". Pre-tokenizer and special tokens are not in the file: both are derived from its name.

namespace trireme::data {
namespace {

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
  std::vector<std::pair<std::string, TokenId>> specials(family.specials.begin(), family.specials.end());
  if (specials.empty()) specials = {{"<|endoftext|>", behind_last}};
  return byte_level_parts(name, family.pattern, tokens, specials);
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
