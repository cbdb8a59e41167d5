#include <algorithm>
#include <sstream>

#include "trireme/data/tokenizer/json_view.hpp"
#include "trireme/data/tokenizer/tokenizer_json_models.hpp"
#include "trireme/data/tokenizer/tokenizer_json_transforms.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"

namespace trireme::data {
namespace {

using Json = nlohmann::json;

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

/// Metaspace may depend on whether a piece begins the original text; a normalizer that inserts text there would require
/// offset tracking.
void refuse_lost_beginning(const JsonView& root, const Tokenizer::Parts& parts) {
  const bool asks = std::ranges::any_of(parts.pre_tokenizers, [](const PreTokenizer& step) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    return metaspace && metaspace->prepend == Metaspace::Prepend::first;
  });
  // These keep the reference's idea of where the first character comes from.
  const auto keeps_beginning = [](const Normalizer& step) {
    return std::holds_alternative<ToNormalForm>(step) || std::holds_alternative<LowerCase>(step) ||
           std::holds_alternative<ApplyCharsmap>(step);
  };
  if (asks && !std::ranges::all_of(parts.normalizers, keeps_beginning))
    root.at("normalizer")
        .not_done(
            "a normalizer other than normal forms, Lowercase and Precompiled before a Metaspace with prepend_scheme "
            "\"first\"");
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

// A string, or an object with "content".
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
