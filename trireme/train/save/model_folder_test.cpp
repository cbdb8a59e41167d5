#include "trireme/train/save/model_folder.hpp"

#include <fstream>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/data/tokenizer/bpe_train.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::Not;

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 16,
  "num_hidden_layers": 2,
  "num_attention_heads": 4,
  "num_key_value_heads": 2,
  "intermediate_size": 24,
  "vocab_size": 300,
  "max_position_embeddings": 64,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
  "tie_word_embeddings": true,
  "torch_dtype": "float16",
  "bos_token_id": 7,
  "eos_token_id": [2, 5],
  "pretraining_tp": 1,
  "_name_or_path": "someone/model"
})";

std::string trained_tokenizer(std::vector<std::string> special) {
  data::BpeTrainOptions options;
  options.vocab_size = 256 + static_cast<std::int64_t>(special.size());
  options.special_tokens = std::move(special);
  return data::tokenizer_json(data::train_bpe(data::WordCounts(), options));
}

/// A model folder as transformers writes it, and a run that started from it.
class ModelFolder : public testing::Test {
 protected:
  ModelFolder() {
    fs::create_directory(folder_ / "model");
    write("config.json", kConfig);
    write("tokenizer.json", trained_tokenizer({"<|endoftext|>"}));
    for (const char* name : {"tokenizer_config.json", "generation_config.json", "chat_template.jinja", "LICENSE"})
      write(name, std::string("{\"this\": \"") + name + "\"}");
    for (const char* name : {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", ".hidden"})
      write(name, "weights");
    model_.model_type = "llama";
    model_.hidden_size = 16;
    model_.num_hidden_layers = 2;
    model_.num_attention_heads = 4;
    model_.num_key_value_heads = 2;
    model_.head_dim = 4;
    model_.intermediate_size = 24;
    model_.vocab_size = 300;
    model_.max_position_embeddings = 64;
    model_.norm_eps = 1e-6;
    model_.tie_word_embeddings = true;
    model_.init = "hf:" + (folder_ / "model").string();
  }
  void write(const std::string& name, const std::string& contents, const std::string& in = "model") {
    std::ofstream(folder_ / in / name, std::ios::binary) << contents;
  }
  std::map<std::string, std::string> files(const fs::path& tokenizer_path) {
    std::optional<data::Tokenizer> tokenizer;
    if (!tokenizer_path.empty()) tokenizer = data::Tokenizer::load(tokenizer_path);
    const SmallFiles files = files_beside_weights({.model = model_,
                                                   .dtype = "bfloat16",
                                                   .tokenizer = tokenizer,
                                                   .tokenizer_path = tokenizer_path.string(),
                                                   .source = source_folder(model_),
                                                   .most_bytes = most_bytes_},
                                                  warnings_);
    return {files.begin(), files.end()};
  }

  TempFolder folder_;
  ModelConfig model_;
  std::uintmax_t most_bytes_ = 256'000'000;
  std::vector<std::string> warnings_;
};

TEST_F(ModelFolder, TheUsersFilesComeAlong) {
  for (const fs::path& tokenizer : {folder_ / "model", folder_ / "model/tokenizer.json", fs::path()}) {
    const auto found = files(tokenizer);
    EXPECT_THAT(found, ElementsAre(Key("LICENSE"), Key("chat_template.jinja"), Key("config.json"),
                                   Key("generation_config.json"), Key("tokenizer.json"), Key("tokenizer_config.json")));
    EXPECT_EQ(found.at("tokenizer_config.json"), R"({"this": "tokenizer_config.json"})");
  }
  EXPECT_THAT(warnings_, testing::IsEmpty());
}

TEST_F(ModelFolder, WhatIsNotKeptIsNamed) {
  write("huge.txt", "");
  fs::resize_file(folder_ / "model/huge.txt", 100'000'001);  // a hole, never read
  for (const char* name : {"onnx", "logs", ".cache"}) fs::create_directory(folder_ / "model" / name);
  write("model.onnx", "weights", "model/onnx");
  write("events", "of a run", "model/logs");
  write("notes", "hidden", "model/.cache");
  write("data.csv", std::string(5000, 'x'));
  write("more.csv", std::string(4000, 'x'));
  EXPECT_THAT(files(folder_ / "model"), AllOf(Contains(Key("data.csv")), Not(Contains(Key("huge.txt")))));
  const std::string at = (folder_ / "model/").string();
  EXPECT_THAT(warnings_,
              ElementsAre(AllOf(HasSubstr("weights: " + at + "huge.txt (95.4 MiB), " + at + "logs/ (no subfolders"),
                                HasSubstr("at most 244 MiB in all"))));
  warnings_.clear();
  most_bytes_ = fs::file_size(folder_ / "model/tokenizer.json") + 4500;
  EXPECT_THAT(files(folder_ / "model"),
              AllOf(Contains(Key("tokenizer.json")), Contains(Key("more.csv")), Not(Contains(Key("data.csv")))));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr(at + "data.csv (4.88 KiB), " + at + "huge.txt (")));
}

TEST_F(ModelFolder, OfTheConfigOnlyWhatChangedIsChanged) {
  std::string expected = kConfig;
  expected.replace(expected.find("float16"), 7, "bfloat16");
  const auto same = [](std::string a, std::string b) {
    std::erase_if(a, [](char c) { return c == ' ' || c == '\n'; });
    std::erase_if(b, [](char c) { return c == ' ' || c == '\n'; });
    return a == b;
  };
  EXPECT_PRED2(same, files(folder_ / "model").at("config.json"), expected);
  model_.rope_theta = 500000;
  model_.max_position_embeddings = 128;
  EXPECT_THAT(files(folder_ / "model").at("config.json"),
              AllOf(HasSubstr("\"rope_theta\": 500000.0"), Not(HasSubstr("rope_parameters")),
                    HasSubstr("\"max_position_embeddings\": 128"), HasSubstr("\"_name_or_path\": \"someone/model\""),
                    Not(HasSubstr("head_dim"))));
}

TEST_F(ModelFolder, AnotherTokenizerBringsItsOwnFiles) {
  fs::create_directory(folder_ / "other");
  write("tokenizer.json", trained_tokenizer({"<|endoftext|>", "<|im_start|>", "<|im_end|>"}), "other");
  write("README.md", "not a tokenizer's", "other");
  auto found = files(folder_ / "other");
  EXPECT_THAT(found,
              ElementsAre(Key("LICENSE"), Key("config.json"), Key("tokenizer.json"), Key("tokenizer_config.json")));
  EXPECT_THAT(found.at("tokenizer_config.json"),
              AllOf(HasSubstr("\"eos_token\": \"<|im_end|>\""), HasSubstr("chat_template")));
  EXPECT_THAT(found.at("config.json"), HasSubstr("\"eos_token_id\": 2"));
  write("tokenizer_config.json", "{}", "other");
  EXPECT_EQ(files(folder_ / "other").at("tokenizer_config.json"), "{}");
}

TEST_F(ModelFolder, EveryKindOfTokenizerIsFoundAgain) {
  const auto small_model = [](const std::string& more) {  // one unknown piece, and `more`
    const auto piece = [](const std::string& text, char type) {
      return std::string("\x0A") + static_cast<char>(text.size() + 4) + "\x0A" + static_cast<char>(text.size()) + text +
             "\x18" + type;
    };
    return piece("?", 2) + piece(more, 1);
  };
  fs::create_directory(folder_ / "other");
  write("tokenizer.model", small_model("a"), "other");
  write("tokenizer_config.json", "{}", "other");
  write("added.txt", "not a tokenizer's", "other");
  for (const fs::path& path : {folder_ / "other", folder_ / "other/tokenizer.model"}) {
    const auto found = files(path);
    EXPECT_THAT(found,
                ElementsAre(Key("LICENSE"), Key("config.json"), Key("tokenizer.model"), Key("tokenizer_config.json")));
    EXPECT_EQ(found.at("tokenizer.model"), small_model("a"));
  }
  // Of a folder with two tokenizers, that of the run.
  write("tokenizer.json", trained_tokenizer({"<|endoftext|>"}), "other");
  EXPECT_THAT(files(folder_ / "other/tokenizer.model"),
              AllOf(Contains(Key("tokenizer.model")), Not(Contains(Key("tokenizer.json")))));
  write("own.model", small_model("b"), "other");
  EXPECT_EQ(files(folder_ / "other/own.model").at("tokenizer.model"), small_model("b"));
  // The source's own.
  fs::remove(folder_ / "model/tokenizer.json");
  write("tokenizer.model", small_model("c"));
  write("tokenizer_config.json", "{}");
  EXPECT_EQ(files(folder_ / "model").at("tokenizer.model"), small_model("c"));
  EXPECT_EQ(files(folder_ / "model/tokenizer.model").at("tokenizer_config.json"), "{}");
}

TEST_F(ModelFolder, WithoutASourceItIsWrittenAnew) {
  model_.init = "random";
  write("book-tokenizer.json", trained_tokenizer({"<|endoftext|>"}));
  const auto found = files(folder_ / "model/book-tokenizer.json");
  EXPECT_THAT(found, ElementsAre(Key("config.json"), Key("tokenizer.json"), Key("tokenizer_config.json")));
  EXPECT_THAT(found.at("tokenizer_config.json"),
              AllOf(HasSubstr("\"eos_token\": \"<|endoftext|>\""), Not(HasSubstr("chat_template")),
                    HasSubstr("\"model_max_length\": 64")));
  EXPECT_THAT(found.at("config.json"), HasSubstr("\"eos_token_id\": 0"));
}

}  // namespace
}  // namespace trireme
