#include "trireme/checkpoint/sources/model_source.hpp"

#include <cstring>
#include <fstream>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/hf_source.hpp"
#include "trireme/checkpoint/sources/model_target.hpp"
#include "trireme/checkpoint/sources/nanotron_source.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/files/safetensors_folder_write.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using enum files::SafetensorsDtype;

/// Its vocabulary divides by the tp of the tests, as nanotron demands.
ModelConfig even_model(const std::string& family) {
  ModelConfig model = small_model(family);
  model.vocab_size = 10;
  return model;
}

/// A Hugging Face folder; every number says of which tensor it is, and which one.
void write_folder(const fs::path& folder, const ModelConfig& model) {
  std::vector<files::SafetensorsTensor> tensors;
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : all_parameters(model)) shapes.emplace(parameter.name, parameter.spec.shape);
  for (const WeightName& name : weight_names(model))
    tensors.push_back({name.theirs, F32, their_shape(name, shapes.at(name.ours))});
  files::SafetensorsFolderWriter writer(folder, tensors);
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    std::vector<float> values(static_cast<std::size_t>(numel(tensors[t].shape)));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(t * 10'000 + i);
    writer.append(tensors[t].name, std::as_bytes(std::span(values)));
  }
  writer.add_file("config.json", config::hf_config_json(model, "float32"));
  writer.add_file("tokenizer.json", "{}");
  writer.publish();
}

std::vector<float> read_floats(const ModelSource& source, const ModelTensor& tensor, const Box& box) {
  std::vector<float> values(bytes_of_box(box, F32) / sizeof(float));
  source.read(tensor, box, std::as_writable_bytes(std::span(values)));
  return values;
}

/// Any box of a tensor is that part of the whole.
void check_boxes(const ModelSource& source) {
  std::mt19937 random(1);
  for (const ModelTensor& tensor : source.tensors()) {
    const std::vector<float> whole = read_floats(source, tensor, whole_box(tensor.shape));
    for (int trial = 0; trial < 8; ++trial) {
      Box box;
      for (const std::int64_t size : tensor.shape) {
        const auto a = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size + 1));
        const auto b = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size + 1));
        box.push_back({std::min(a, b), std::max(a, b)});
      }
      std::vector<float> wanted;
      const Range columns = box.size() > 1 ? box[1] : Range{0, 1};
      const std::int64_t width = box.size() > 1 ? tensor.shape[1] : 1;
      for (std::int64_t r = box[0].begin; r < box[0].end; ++r)
        for (std::int64_t c = columns.begin; c < columns.end; ++c)
          wanted.push_back(whole[static_cast<std::size_t>(r * width + c)]);
      ASSERT_EQ(read_floats(source, tensor, box), wanted) << tensor.name << " " << str(box);
    }
  }
}

TEST(ModelSource, AnyBoxOfAnyFormat) {
  for (const char* family : {"gpt2", "llama", "qwen2"}) {
    const TempFolder temp;
    write_folder(temp / "hf", even_model(family));
    const auto source = open_model(temp / "hf");
    check_boxes(*source);
    EXPECT_EQ(source->files().at("tokenizer.json"), "{}");
    if (std::string(family) == "gpt2") continue;
    write_nanotron(*source, temp / "nanotron", {.tp = 2, .pp = 2}, std::nullopt);
    const auto theirs = open_model(temp / "nanotron");
    check_boxes(*theirs);
    ASSERT_EQ(theirs->tensors().size(), source->tensors().size());
    for (std::size_t i = 0; i < source->tensors().size(); ++i) {
      const ModelTensor &a = source->tensors()[i], &b = theirs->tensors()[i];
      ASSERT_EQ(a.name, b.name);
      EXPECT_EQ(read_floats(*source, a, whole_box(a.shape)), read_floats(*theirs, b, whole_box(b.shape))) << a.name;
    }
  }
}

TEST(ModelSource, AFusedParameterHasOneDtype) {
  const TempFolder temp;
  const ModelConfig model = even_model("llama");
  write_folder(temp / "hf", model);
  const auto source = open_model(temp / "hf");
  // The same folder with a k_proj of another dtype.
  std::vector<files::SafetensorsTensor> tensors;
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : all_parameters(model)) shapes.emplace(parameter.name, parameter.spec.shape);
  for (const WeightName& name : weight_names(model)) {
    Shape shape = shapes.at(name.ours);
    shape[0] = name.rows;
    tensors.push_back({name.theirs, name.theirs.find("k_proj") != std::string::npos ? F16 : F32, shape});
  }
  files::SafetensorsFolderWriter writer(temp / "mixed", tensors);
  for (const files::SafetensorsTensor& tensor : tensors)
    writer.append(tensor.name, std::vector<std::byte>(files::bytes_of(tensor)));
  writer.add_file("config.json", source->files().at("config.json"));
  writer.publish();
  EXPECT_THAT(message_of<CheckpointError>([&] { open_model(temp / "mixed"); }),
              HasSubstr("k_proj.weight is of dtype F16, and model.layers.0.self_attn.q_proj.weight"));
}

TEST(ModelSource, NoFolderIsLeftAfterAnError) {
  const TempFolder temp;
  write_folder(temp / "hf", even_model("llama"));
  struct Failing final : ModelSource {
    std::unique_ptr<ModelSource> inner;
    const std::string& shown() const override { return inner->shown(); }
    const ModelConfig& model() const override { return inner->model(); }
    const std::vector<ModelTensor>& tensors() const override { return inner->tensors(); }
    const FilesBeside& files() const override { return inner->files(); }
    void read(const ModelTensor& tensor, const Box& box, std::span<std::byte> out) const override {
      if (tensor.name == "norm.weight") throw CheckpointError("the disk is gone");
      inner->read(tensor, box, out);
    }
  } source;
  source.inner = open_model(temp / "hf");
  EXPECT_THROW(write_nanotron(source, temp / "a", {}, std::nullopt), CheckpointError);
  EXPECT_THROW(write_hugging_face(source, temp / "b", std::nullopt), CheckpointError);
  EXPECT_EQ(std::distance(fs::directory_iterator(temp.path()), {}), 1) << "only the source";
}

}  // namespace
}  // namespace trireme::checkpoint
