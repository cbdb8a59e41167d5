#include <algorithm>

#include "trireme/data/tokenizer/base64.hpp"
#include "trireme/data/tokenizer/byte_level_parts.hpp"
#include "trireme/data/tokenizer/json_view.hpp"

// Mistral's tekken.json: the tokens of tiktoken with the pattern that cuts words. Special tokens come first: token i of
// the vocabulary has the id default_num_special_tokens + i.

namespace trireme::data {
namespace {

// Files of versions up to v7 may leave out the list.
constexpr const char* kUsualSpecials[] = {"<unk>",
                                          "<s>",
                                          "</s>",
                                          "[INST]",
                                          "[/INST]",
                                          "[AVAILABLE_TOOLS]",
                                          "[/AVAILABLE_TOOLS]",
                                          "[TOOL_RESULTS]",
                                          "[/TOOL_RESULTS]",
                                          "[TOOL_CALLS]",
                                          "[IMG]",
                                          "<pad>",
                                          "[IMG_BREAK]",
                                          "[IMG_END]",
                                          "[PREFIX]",
                                          "[MIDDLE]",
                                          "[SUFFIX]",
                                          "[SYSTEM_PROMPT]",
                                          "[/SYSTEM_PROMPT]",
                                          "[TOOL_CONTENT]"};

int version_of(const JsonView& config) {
  const std::string version = config.at("version").string();
  int number = 0;
  for (const char c : version.substr(std::min<std::size_t>(1, version.size()), 3)) {
    if (c < '0' || c > '9') break;  // "v7m1"
    number = number * 10 + (c - '0');
  }
  if (!version.starts_with('v') || number == 0) config.at("version").fail("is not v1, v2, ...");
  return number;
}

NumberedTokens read_specials(const JsonView& root, TokenId count) {
  const JsonView list = root.at("special_tokens");
  constexpr int kLastWithout = 7;
  NumberedTokens out;
  if (!list.is_null()) {
    for (std::size_t i = 0; i < list.list_size(); ++i) {
      const JsonView token = list.at(i);
      token.only({"rank", "token_str", "is_control"});
      if (token.at("rank").number() != i) token.at("rank").fail(text("is not ", i, ", its place in the list"));
      out.emplace_back(token.at("token_str").string(), static_cast<TokenId>(i));
      if (out.back().first.empty()) token.at("token_str").fail("is empty");
    }
  } else if (const int version = version_of(root.at("config")); version > kLastWithout) {
    list.fail(text("is missing; a file of version v", version, " must have it"));
  } else {
    for (const char* usual : kUsualSpecials) out.emplace_back(usual, static_cast<TokenId>(out.size()));
  }
  if (out.size() > count)
    root.at("config").at("default_num_special_tokens").fail(text("is ", count, ", for ", out.size(), " of them"));
  while (out.size() < count) out.emplace_back(text("<SPECIAL_", out.size(), ">"), static_cast<TokenId>(out.size()));
  return out;
}

NumberedTokens read_tokens(const JsonView& vocab, TokenId first, std::size_t count) {
  if (vocab.list_size() < count) vocab.fail(text("has ", vocab.list_size(), " tokens, fewer than ", count));
  NumberedTokens out;
  for (std::size_t i = 0; i < count; ++i) {
    const JsonView token = vocab.at(i);
    token.only({"rank", "token_bytes", "token_str"});
    if (token.at("rank").number() != i) token.at("rank").fail(text("is not ", i, ", its place in the list"));
    const JsonView bytes = token.at("token_bytes");
    out.emplace_back(from_base64(bytes.string(), bytes.place()), static_cast<TokenId>(first + i));
    if (i < 256 && out.back().first != std::string(1, static_cast<char>(i))) bytes.fail(text("is not the byte ", i));
  }
  return out;
}

}  // namespace

std::unique_ptr<Tokenizer::Parts> parts_of_tekken_text(std::string_view json, const std::string& name) {
  const nlohmann::json value = JsonView::parsed(json, name);
  const JsonView root(value, name);
  // The last ones are about images and sounds, which become tokens elsewhere.
  root.only({"config", "vocab", "special_tokens", "version", "type", "multimodal", "image", "audio"});
  const JsonView config = root.at("config");
  config.only({"pattern", "num_vocab_tokens", "default_vocab_size", "default_num_special_tokens", "version"});
  const TokenId specials = config.at("default_num_special_tokens").number();
  constexpr TokenId kMostSpecials = 65'536;
  if (specials > kMostSpecials)
    config.at("default_num_special_tokens").fail(text("is ", specials, "; at most ", kMostSpecials, " are allowed"));
  const TokenId all = config.at("default_vocab_size").number();
  const std::size_t listed = root.at("vocab").list_size();
  if (specials == 0 || specials >= all || all > listed + specials)
    config.at("default_vocab_size")
        .fail(text("is ", all, "; with ", specials, " special tokens and ", listed, " others it is ", specials + 1,
                   " to ", listed + specials));
  const NumberedTokens tokens = read_tokens(root.at("vocab"), specials, all - specials);
  std::unique_ptr<Tokenizer::Parts> parts;
  try {
    parts = byte_level_parts(name, config.at("pattern").string(), tokens, read_specials(root, specials));
  } catch (const DataError& error) {
    const std::string what = error.what();
    throw DataError(what.starts_with(name) ? what : text(config.at("pattern").place(), ": ", what));
  }
  parts->special_is_text = true;
  if (const auto end = parts->ids.find("</s>"); end != parts->ids.end()) parts->end_of_document = end->second;
  return parts;
}

std::unique_ptr<Tokenizer::Parts> parts_of_tekken(const std::filesystem::path& file) {
  auto parts = parts_of_tekken_text(tokenizer_file_text(file), file.string());
  if (const auto end = configured_end(file, *parts)) parts->end_of_document = end;
  return parts;
}

}  // namespace trireme::data
