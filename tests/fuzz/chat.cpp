// Fuzz target: the chat template of a model, and a line of conversation in it. Input: Jinja, then after a NUL the line.
#include <cstdint>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/data/prepare/json_list.hpp"
#include "trireme/data/tokenizer/chat_of_model.hpp"
#include "trireme/data/tokenizer/json_field.hpp"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const data::Tokenizer tokenizer = data::Tokenizer::load("bytes");
  const std::string_view input(reinterpret_cast<const char*>(bytes), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const data::ModelChat model{.file = "x", .jinja = std::string(input.substr(0, end)), .bos = "<s>", .eos = "</s>"};
  const std::string_view line = input.substr(std::min(end + 1, size));
  data::JsonListCutter cutter;
  for (const char c : line)
    if (cutter.take(c) == data::JsonListCutter::Found::error) break;
  const data::ChatTemplate chat = data::known_template(model, tokenizer).value_or(data::ChatTemplate::load("plain"));
  require(chat.turn("assistant") != nullptr, "a template without an assistant");
  try {
    data::ChatParser parser(chat);
    for (const data::TextPart& part : parser.parse(line)) require(!part.text.empty(), "an empty part");
  } catch (const data::BadDocument&) {
  }
  return 0;
}
