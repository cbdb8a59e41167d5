#include <algorithm>
#include <sstream>

#include "trireme/data/tokenizer/byte_alphabet.hpp"
#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/data/tokenizer/tokenizer_json_transforms.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

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

void read_merges(const JsonView& merges, Tokenizer::Parts& parts, std::string& identity) {
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
  parts.model.merges = MergeTable(list, ranks);
}

void read_model(const JsonView& model, Tokenizer::Parts& parts, bool byte_level, std::string& identity) {
  const std::string type = model.string_or("type", "BPE");
  if (type != "BPE") model.not_done(text("the type ", files::shown_name(type)));
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("dropout") && model.at("dropout").value() != 0) model.at("dropout").not_done("dropout of merges");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.string_or(affix, "").empty()) model.at(affix).not_done("a mark at the borders of words");

  read_vocabulary(model.at("vocab"), parts);
  read_merges(model.at("merges"), parts, identity);
  BpeModel& bpe = parts.model;
  bpe.byte_level = byte_level;
  bpe.byte_fallback = model.flag("byte_fallback", false);
  bpe.whole_words_first = model.flag("ignore_merges", false);
  bpe.fuse_unknown = model.flag("fuse_unk", false);
  if (model.has("unk_token")) {
    const auto found = parts.ids.find(model.at("unk_token").string());
    if (found == parts.ids.end()) model.at("unk_token").fail("is not in the vocabulary");
    bpe.unknown = found->second;
  }
  if (byte_level && bpe.byte_fallback)
    model.at("byte_fallback").not_done("byte_fallback behind the pre-tokenizer ByteLevel");
  for (const auto& [spelling, id] : parts.ids) {
    if (const auto byte = fallback_byte(spelling)) bpe.fallbacks[*byte] = id;
    if (!byte_level) {
      bpe.words.emplace(spelling, id);
    } else if (const auto bytes = bytes_of_spelling(spelling)) {
      bpe.words.emplace(*bytes, id);
      if (bytes->size() == 1) bpe.byte_ids[static_cast<unsigned char>((*bytes)[0])] = id;
    }
  }
}

/// The reference ignores the id in the file: a token of the vocabulary keeps its id, others get the next free one.
class ReferenceNumbers {
 public:
  explicit ReferenceNumbers(const Tokenizer::Parts& parts)
      : vocabulary_(parts.ids), next_(static_cast<TokenId>(parts.ids.size())) {}
  TokenId of(const std::string& content) {
    if (const auto known = vocabulary_.find(content); known != vocabulary_.end()) {
      next_ = std::max(next_, known->second + 1);
      return known->second;
    }
    vocabulary_.emplace(content, next_);
    return next_++;
  }

 private:
  TokenMap vocabulary_;
  TokenId next_;
};

AddedToken read_added_token(const JsonView& entry) {
  constexpr std::size_t kLongest = 1024;  // a longer one would be compared with every text
  entry.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
  AddedToken token{.id = entry.at("id").number(),
                   .content = entry.at("content").string(),
                   .special = entry.flag("special", false),
                   .normalised = entry.flag("normalized", false),
                   .strip_left = entry.flag("lstrip", false),
                   .strip_right = entry.flag("rstrip", false),
                   .whole_word = entry.flag("single_word", false)};
  if (token.content.empty() || token.content.size() > kLongest)
    entry.at("content").fail(text("has ", token.content.size(), " bytes; 1 to ", kLongest, " are allowed"));
  return token;
}

void read_added_tokens(const JsonView& list, Tokenizer::Parts& parts, std::string& identity) {
  std::vector<AddedToken> before, behind;
  ReferenceNumbers numbers(parts);
  for (std::size_t i = 0; !list.is_null() && i < list.list_size(); ++i) {
    AddedToken token = read_added_token(list.at(i));
    const TokenId number = numbers.of(token.content);
    if (number != token.id)
      list.at(i).fail(text(
          "says that ", files::shown_name(token.content), " is token ", token.id, "; the reference makes it ", number,
          "\n  fix: number added tokens on from the vocabulary's size (", parts.ids.size(), "), without gaps"));
    parts.set_text(token.id, token.content);
    parts.special.resize(parts.texts.size());
    parts.special[token.id] = token.special;
    identity += text(token.id, ' ', token.content, ' ', token.normalised, token.strip_left, token.strip_right,
                     token.whole_word, '\n');
    if (token.normalised) {
      for (const Normalizer& step : parts.normalizers) token.content = normalised_by(step, token.content);
      parts.decoded_as.emplace_back(token.id, token.content);
      behind.push_back(std::move(token));
    } else {
      before.push_back(std::move(token));
    }
  }
  parts.added = AddedTokenFinder(std::move(before));
  parts.added_normalised = AddedTokenFinder(std::move(behind));
}

std::optional<TokenId> named_end(const Tokenizer::Parts& parts) {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<｜end▁of▁sentence｜>", "<eos>"})
    if (const auto found = parts.ids.find(name); found != parts.ids.end()) return found->second;
  return std::nullopt;
}

/// "eos_token" of the tokenizer_config.json next to `file`: a string, or an object with "content".
std::optional<TokenId> configured_end(const std::filesystem::path& file, const Tokenizer::Parts& parts) {
  const std::filesystem::path config = file.parent_path() / "tokenizer_config.json";
  if (!std::filesystem::exists(config)) return std::nullopt;
  const Json json = JsonView::parsed(tokenizer_file_text(config), config.string());
  const JsonView eos = JsonView(json, config.string()).at("eos_token");
  if (eos.is_null()) return std::nullopt;
  const std::string name = eos.value().is_object() ? eos.at("content").string() : eos.string();
  const auto found = parts.ids.find(name);
  if (found == parts.ids.end()) eos.fail(text("is ", files::shown_name(name), ", which is not in ", file.string()));
  return found->second;
}

/// Metaspace may depend on whether a piece begins the original text; a normalizer that inserts text there would require
/// offset tracking.
void refuse_lost_beginning(const JsonView& root, const Tokenizer::Parts& parts) {
  const bool asks = std::ranges::any_of(parts.pre_tokenizers, [](const PreTokenizer& step) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    return metaspace && metaspace->prepend == Metaspace::Prepend::first;
  });
  const bool rewrites = std::ranges::any_of(
      parts.normalizers, [](const Normalizer& step) { return !std::holds_alternative<ToNormalForm>(step); });
  if (asks && rewrites)
    root.at("normalizer").not_done("Prepend or Replace before a Metaspace with prepend_scheme \"first\"");
}

std::unique_ptr<Tokenizer::Parts> parts_of_json(const Json& json, const std::string& name) {
  const JsonView root(json, name);
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  for (const char* key : {"truncation", "padding"})
    if (root.has(key))
      root.at(key).fail(text("is set: samples would be cut or filled up\n  fix: set ", key, " to null in ", name));

  auto parts = std::make_unique<Tokenizer::Parts>();
  parts->name = name;
  parts->normalizers = read_normalizers(root.at("normalizer"));
  PreTokenizers pre = read_pre_tokenizers(root.at("pre_tokenizer"));
  parts->pre_tokenizers = std::move(pre.steps);
  parts->fast = pre.fast;
  refuse_lost_beginning(root, *parts);
  // Everything that affects token ids, and nothing else.
  std::string identity =
      text(json.value("normalizer", Json()).dump(), '\n', json.value("pre_tokenizer", Json()).dump(), '\n');
  read_model(root.at("model"), *parts, pre.byte_level, identity);
  const BpeModel& model = parts->model;
  identity += text(model.byte_level, model.byte_fallback, model.whole_words_first, model.fuse_unknown,
                   model.unknown.value_or(kNoToken), '\n');
  read_added_tokens(root.at("added_tokens"), *parts, identity);
  parts->special.resize(parts->texts.size());
  read_post_processor(root.at("post_processor"), *parts);
  parts->decoding = read_decoding(root.at("decoder"), *parts);
  parts->end_of_document = named_end(*parts);
  for (const TokenId id : parts->before) identity += text('<', id);
  for (const TokenId id : parts->behind) identity += text('>', id);
  for (const std::string& token : parts->texts) identity += token + '\n';
  parts->fingerprint = hash_text(identity);
  return parts;
}

}  // namespace

std::unique_ptr<Tokenizer::Parts> parts_of_tokenizer_json_text(std::string_view json, const std::string& name) {
  return parts_of_json(JsonView::parsed(json, name), name);
}

std::unique_ptr<Tokenizer::Parts> parts_of_tokenizer_json(const std::filesystem::path& file) {
  auto parts = parts_of_tokenizer_json_text(tokenizer_file_text(file), file.string());
  if (const auto end = configured_end(file, *parts)) parts->end_of_document = end;
  return parts;
}

// Converted to a tokenizer.json with GPT-2's components, so that there is only one reader.
std::unique_ptr<Tokenizer::Parts> parts_of_vocab_and_merges(const std::filesystem::path& vocab,
                                                            const std::filesystem::path& merges) {
  require<DataError>(std::filesystem::exists(merges), vocab.string(), " needs ", merges.filename().string(),
                     " beside it");
  const Json tokens = JsonView::parsed(tokenizer_file_text(vocab), vocab.string());
  Json pairs = Json::array();
  std::istringstream lines(tokenizer_file_text(merges));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with("#version")) continue;
    pairs.push_back(line);
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json json = {{"added_tokens", Json::array()},
               {"pre_tokenizer", byte_level},
               {"decoder", byte_level},
               {"model", {{"type", "BPE"}, {"vocab", tokens}, {"merges", std::move(pairs)}}}};
  if (const auto end = tokens.find("<|endoftext|>"); end != tokens.end())
    json["added_tokens"].push_back(
        {{"id", *end}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}});
  return parts_of_json(json, vocab.string());
}

}  // namespace trireme::data
