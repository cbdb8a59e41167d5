#include "trireme/data/tokenizer/chat_of_model.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/data/tokenizer/bpe_train.hpp"
#include "trireme/testing/documents.hpp"

namespace trireme::data {
namespace {

using testing::HasSubstr;

class ChatOfModel : public testing::Test {
 protected:
  void trained(std::vector<std::string> special) {
    BpeTrainOptions options;
    options.vocab_size = 256 + static_cast<std::int64_t>(special.size());
    options.special_tokens = std::move(special);
    write_bytes(folder_ / "tokenizer.json", tokenizer_json(train_bpe(WordCounts(), options)));
  }
  ChosenTemplate chosen(const std::string& tokenizer = "") {
    const std::filesystem::path path = folder_ / tokenizer;
    return choose_template(path, Tokenizer::load(path));
  }

  TempFolder folder_;
};

TEST_F(ChatOfModel, TheFileOfItsOwnComesFirst) {
  trained({"<s>", "</s>"});
  write_bytes(folder_ / "tokenizer_config.json",
              R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "{{ '<|im_start|>' }}"})");
  write_bytes(folder_ / "chat_template.jinja",
              "{{ bos_token }}{{ ' [INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token }}");
  for (const char* tokenizer : {"", "tokenizer.json"}) {
    const ChosenTemplate found = chosen(tokenizer);
    EXPECT_EQ(found.chat.name, "mistral");
    EXPECT_EQ(found.chat.begin, "<s>");
    EXPECT_EQ(found.chat.turn("user")->prefix, " [INST] ");
    EXPECT_EQ(found.chat.turn("assistant")->suffix, "</s>");
    EXPECT_FALSE(found.is_guess);
    EXPECT_THAT(found.why, HasSubstr("chat_template.jinja"));
  }
}

TEST_F(ChatOfModel, OfSeveralTemplatesTheDefault) {
  trained({"<start_of_turn>", "<end_of_turn>"});
  write_bytes(folder_ / "tokenizer_config.json",
              R"({"chat_template": [{"name": "tools", "template": "<|im_start|>"},
                                    {"name": "default", "template": "<start_of_turn>{{ x | trim }}"}]})");
  EXPECT_EQ(chosen().chat.name, "gemma");
  EXPECT_TRUE(chosen().chat.trim);
}

TEST_F(ChatOfModel, WhatIsNotKnownIsAGuess) {
  trained({"<|im_start|>", "<|im_end|>", "<|endoftext|>"});
  EXPECT_EQ(chosen().chat.name, "chatml");
  EXPECT_FALSE(chosen().is_guess) << "there is no other";
  write_bytes(folder_ / "chat_template.jinja",
              "{{ '<|im_start|>' }}{% if message.reasoning_content %}<think>{% endif %}");
  EXPECT_EQ(chosen().chat.name, "chatml");
  EXPECT_TRUE(chosen().is_guess);
  trained({"<|endoftext|>"});
  write_bytes(folder_ / "chat_template.jinja", "### Instruction: {{ message }}");
  EXPECT_EQ(chosen().chat.name, "plain");
  EXPECT_TRUE(chosen().is_guess);
  write_bytes(folder_ / "tokenizer_config.json", "{");
  EXPECT_THROW(chosen(), DataError);
}

TEST_F(ChatOfModel, ADefaultMessageOfTheSystemIsReadOff) {
  const Tokenizer tokenizer = Tokenizer::load("bytes");
  ModelChat model{
      .file = "x", .jinja = R"({{ '<|im_start|>system\nBe \"kind\".\n<|im_end|>\n' }})", .bos = "", .eos = ""};
  EXPECT_EQ(known_template(model, tokenizer)->default_system, std::nullopt) << "with quotes: perhaps a program";
  model.jinja =
      R"({{ '<|im_start|>system\n' + messages[0] + '<|im_end|>' }}{{ '<|im_start|>system\nBe kind.\n<|im_end|>\n' }})";
  EXPECT_EQ(known_template(model, tokenizer)->default_system, "Be kind.\n");
  model.jinja = "{{ '<|im_start|>system\nBe kind.\n<|im_end|>\n' }}";  // as JSON's own \n is read
  EXPECT_EQ(known_template(model, tokenizer)->default_system, "Be kind.\n");
}

TEST_F(ChatOfModel, MistralsLaterRulesAreNotKnown) {
  const Tokenizer tokenizer = Tokenizer::load("bytes");
  const auto is_known = [&](const std::string& user, const std::string& assistant) {
    const ModelChat model{.file = "x",
                          .jinja =
                              "{% if messages[0]['role'] == 'system' %}{% set said = messages[0]['content'] %}"
                              "{% endif %}{{ '[INST] ' + " +
                              user + " + '[/INST]' }}{{ " + assistant + " + eos_token }}",
                          .bos = "<s>",
                          .eos = "</s>"};
    return known_template(model, tokenizer).has_value();
  };
  EXPECT_TRUE(is_known("message['content']", "message['content']"));
  EXPECT_TRUE(is_known("message['content']|trim", "(message['content']) | trim"));
  EXPECT_TRUE(is_known("(', ' if not loop.last) + message['content']", "message['content']"));
  EXPECT_FALSE(is_known("message['content']", "message['content']|trim"));
  EXPECT_FALSE(is_known("message[\"content\"].strip()", "message[\"content\"]"));
  EXPECT_FALSE(is_known("(said if loop.last) + message['content']", "message['content']"));
}

TEST_F(ChatOfModel, MessagesOfToolsNeedATurnOfTheirOwn) {
  const Tokenizer tokenizer = Tokenizer::load("bytes");
  ModelChat model{.file = "x", .jinja = "{{ '<|im_start|>' + m['role'] }}", .bos = "", .eos = ""};
  EXPECT_NE(known_template(model, tokenizer)->turn("tool"), nullptr);
  model.jinja += "{{ '<tool_response>' }}";  // Qwen 2.5: within a turn of the user
  EXPECT_EQ(known_template(model, tokenizer)->turn("tool"), nullptr);
}

}  // namespace
}  // namespace trireme::data
