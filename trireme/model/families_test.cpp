#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/schema/presets.hpp"
#include "trireme/config/translate/hf_config_write.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/describe/weight_names.hpp"
#include "trireme/model/hugging_face.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/parallel/tensor/sampler.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/nn_helpers.hpp"
#include "trireme/testing/temp_folder.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// Writes a safetensors file of these tensors, without using the library.
void write_safetensors(const fs::path& file, const std::map<std::string, at::Tensor>& tensors,
                       at::ScalarType dtype = at::kFloat, const std::string& word = "F32") {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor numbers = tensor.detach().to(dtype).contiguous();
    if (header.size() > 1) header += ",";
    header += "\"" + name + "\":{\"dtype\":\"" + word + "\",\"shape\":[";
    for (std::int64_t i = 0; i < numbers.dim(); ++i) header += text(i > 0 ? "," : "", numbers.size(i));
    header += text("],\"data_offsets\":[", data.size(), ",", data.size() + numbers.nbytes(), "]}");
    data.append(static_cast<const char*>(numbers.data_ptr()), numbers.nbytes());
  }
  header += "}";
  const std::uint64_t size = header.size();
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(&size), 8) << header << data;
}

/// Every weight of a model by its Hugging Face name, from a single rank.
std::map<std::string, at::Tensor> their_weights(const ModelConfig& m) {
  std::map<std::string, at::Tensor> out;
  on_tp(1, [&](Mesh& mesh) {
    Decoder decoder(m, {mesh});
    fill(decoder, mesh);
    std::map<std::string, at::Tensor> ours;
    for (const Param& param : params_of(decoder)) ours[param.name] = param.value.detach();
    for (const WeightName& name : weight_names(m)) out[name.theirs] = their_tensor(name, ours.at(name.ours));
  });
  return out;
}

const std::vector<std::string> kFamilies{"gpt2",  "llama",   "mistral",   "qwen2",
                                         "qwen3", "mixtral", "qwen3_moe", "gemma2"};

TEST(Families, EveryElementHasOneNameOnBothSides) {
  for (const std::string& family : kFamilies)
    for (const bool tied : {false, true}) {
      ModelConfig m = small_model(family);
      m.tie_word_embeddings = tied;
      std::map<std::string, std::int64_t> rows;
      std::set<std::string> theirs;
      for (const WeightName& name : weight_names(m)) {
        std::int64_t& found = rows[name.ours];
        const std::int64_t of_expert = name.ours.ends_with("gate_up") ? 2 * name.rows : name.rows;
        const std::int64_t first = name.expert < 0 ? 0 : name.expert * of_expert;
        EXPECT_EQ(first + name.first_row, found) << name.theirs;  // contiguous rows, without a gap
        found += name.rows;
        EXPECT_TRUE(theirs.insert(name.theirs).second) << name.theirs;
      }
      on_tp(1, [&](Mesh& mesh) {
        Decoder decoder(m, {mesh});
        std::int64_t elements = 0;
        for (const Param& param : params_of(decoder)) {
          const Shape& shape = param.spec.shape;
          EXPECT_EQ(rows.at(param.name), shape.size() == 3 ? shape[0] * shape[1] : shape[0]) << param.name;
          elements += numel(shape);
        }
        EXPECT_EQ(rows.size(), params_of(decoder).size());
        EXPECT_EQ(elements, config::count_parameters(m).total()) << family;
      });
    }
  EXPECT_THROW(weight_names(small_model("gemma9")), ConfigError);
}

TEST(HuggingFace, EachRankReadsItsPart) {
  for (const std::string& family : kFamilies) {
    const ModelConfig m = small_model(family);
    const auto theirs = their_weights(m);
    const TempFolder folder;
    write_safetensors(folder.path() / "model.safetensors", theirs);
    for (const int ranks : {1, 2, 4})
      on_tp(ranks, [&](Mesh& mesh) {
        Decoder decoder(m, {mesh});
        load_hugging_face(decoder, folder.path(), mesh);
        std::map<std::string, at::Tensor> ours;
        for (const Param& param : params_of(decoder)) {
          const FullTensor whole = gather_full_tensor(param.value, param.spec, mesh);
          EXPECT_EQ(whole.disagreement, 0) << param.name;
          ours[param.name] = whole.value;
        }
        for (const WeightName& name : weight_names(m))
          EXPECT_TRUE(
              their_tensor(name, ours.at(name.ours)).to(at::kFloat).equal(theirs.at(name.theirs).to(at::kFloat)))
              << family << " " << name.theirs << " on " << ranks;
      });
  }
}

TEST(HuggingFace, Gpt2sOwnFilesHaveShorterNamesAndConstants) {
  const ModelConfig m = small_model("gpt2");
  std::map<std::string, at::Tensor> file;
  const auto theirs = their_weights(m);
  for (const auto& [name, tensor] : theirs) file[name.substr(name.find('.') + 1)] = tensor;
  file["h.0.attn.bias"] = at::ones({1, 1, 8, 8});
  const TempFolder folder;
  write_safetensors(folder.path() / "model.safetensors", file);
  on_tp(1, [&](Mesh& mesh) {
    Decoder decoder(m, {mesh});
    load_hugging_face(decoder, folder.path(), mesh);
    std::map<std::string, at::Tensor> ours;
    for (const Param& param : params_of(decoder)) ours[param.name] = param.value.detach();
    for (const WeightName& name : weight_names(m))
      EXPECT_TRUE(their_tensor(name, ours.at(name.ours)).equal(theirs.at(name.theirs).to(at::kFloat).to(at::kDouble)))
          << name.theirs;
  });
}

TEST(HuggingFace, AConfigJsonOfAnotherModelIsNoted) {
  ModelConfig m = small_model("llama");
  const TempFolder folder;
  write_safetensors(folder.path() / "model.safetensors", their_weights(m));
  std::ofstream(folder.path() / "config.json") << config::hf_config_json(m, "float32");
  on_tp(1, [&](Mesh& mesh) {
    const auto note = [&] { return HuggingFaceWeights(Decoder(m, {mesh}), folder.path()).note(); };
    EXPECT_EQ(note(), "");
    m.norm_eps = 1e-3;
    m.rope_theta = 5e5;
    EXPECT_EQ(note(), text(folder.path().string(), ": config.json has norm_eps = 1e-05 (the run's: 0.001), ",
                           "rope_theta = 10000.0 (the run's: 5e+05)"));
  });
}

/// Numbers of a contiguous tensor, each converted alone: the vectorized conversions of libtorch are not involved.
std::vector<double> one_by_one(const at::Tensor& x) {
  std::vector<double> out;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "one_by_one", [&] {
    for (std::int64_t i = 0; i < x.numel(); ++i) out.push_back(static_cast<double>(x.const_data_ptr<scalar_t>()[i]));
  });
  return out;
}

double rounded_to(at::ScalarType dtype, double x) {
  const auto narrow = static_cast<float>(x);
  return dtype == at::kDouble  ? x
         : dtype == at::kFloat ? narrow
         : dtype == at::kHalf  ? static_cast<double>(static_cast<float>(at::Half(narrow)))
                               : static_cast<double>(static_cast<float>(at::BFloat16(narrow)));
}

bool is_same_number(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

/// Infinities, NaN, zeros, subnormal and too large numbers of every dtype, read into every dtype, as they are in the
/// file (llama) and transposed (gpt2).
TEST(HuggingFace, NumbersAtTheEdgesSurviveEveryConversion) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> edges{kInf, -kInf,  std::nan(""), 0.0,   -0.0,   1.0,  -2.5,  65504,
                                  1e39, -1e300, 1e-40,        1e-45, 5e-324, 6e-8, -6e-5, 3.3e38};
  const std::pair<at::ScalarType, const char*> dtypes[] = {
      {at::kDouble, "F64"}, {at::kFloat, "F32"}, {at::kHalf, "F16"}, {at::kBFloat16, "BF16"}};
  for (const std::string family : {"llama", "gpt2"}) {
    const ModelConfig m = small_model(family);
    auto theirs = their_weights(m);
    for (const auto& [in_file, word] : dtypes) {
      for (auto& [name, tensor] : theirs) {
        std::vector<double> values;
        for (std::int64_t i = 0; i < tensor.numel(); ++i)
          values.push_back(rounded_to(in_file, edges[static_cast<std::size_t>(i) % edges.size()]));
        tensor = at::tensor(values, at::kDouble).view(tensor.sizes());
      }
      const TempFolder folder;
      write_safetensors(folder.path() / "model.safetensors", theirs, in_file, word);
      for (const auto& [of_model, model_word] : dtypes)
        on_tp(1, [&](Mesh& mesh) {
          const InitScope scope(at::kCPU, of_model);
          Decoder decoder(m, {mesh});
          load_hugging_face(decoder, folder.path(), mesh);
          std::map<std::string, at::Tensor> ours;
          for (const Param& param : params_of(decoder)) ours[param.name] = param.value.detach();
          for (const WeightName& name : weight_names(m)) {
            const std::vector<double> found = one_by_one(their_tensor(name, ours.at(name.ours)).contiguous());
            const std::vector<double> wanted = one_by_one(theirs.at(name.theirs));
            ASSERT_EQ(found.size(), wanted.size());
            for (std::size_t i = 0; i < found.size(); ++i)
              ASSERT_TRUE(is_same_number(found[i], rounded_to(of_model, wanted[i])))
                  << name.theirs << ": " << wanted[i] << " of " << word << " is " << found[i] << " in " << model_word;
          }
        });
    }
  }
}

TEST(HuggingFace, WhatDoesNotFitIsNamedAllAtOnce) {
  const ModelConfig m = small_model("llama");
  auto file = their_weights(m);
  file.erase("model.norm.weight");
  file["model.layers.1.mlp.down_proj.weight"] = at::zeros({16, 25});
  file["model.layers.7.extra"] = at::zeros({1});
  const TempFolder folder;
  write_safetensors(folder.path() / "model.safetensors", file);
  on_tp(1, [&](Mesh& mesh) {
    Decoder decoder(m, {mesh});
    EXPECT_THAT(message_of<CheckpointError>([&] { load_hugging_face(decoder, folder.path(), mesh); }),
                AllOf(HasSubstr("3 tensors do not fit"), HasSubstr("model.norm.weight is missing"),
                      HasSubstr("model.layers.1.mlp.down_proj.weight has shape (16, 25), the model's is (16, 24)"),
                      HasSubstr("model.layers.7.extra has no place in a llama model"), HasSubstr("fix: ")));
  });
}

TEST(HuggingFace, AParameterWithoutANameIsNamed) {
  ModelConfig m = small_model("gpt2");
  const TempFolder folder;
  write_safetensors(folder.path() / "model.safetensors", their_weights(m));
  m.qk_norm = true;
  on_tp(1, [&](Mesh& mesh) {
    Decoder decoder(m, {mesh});
    EXPECT_THAT(message_of<CheckpointError>([&] { load_hugging_face(decoder, folder.path(), mesh); }),
                HasSubstr("layers.0.attention.q_norm.weight of this config has no name in a gpt2 folder"));
  });
}

TEST(Decoder, SamplesTheSameTokenOnEveryLayout) {
  at::Tensor one;
  for (const int ranks : {1, 2, 4})
    for (const bool sequence_parallel : {false, true})
      on_tp(ranks, [&](Mesh& mesh) {
        Group& group = mesh.group(Axis::tp);
        Decoder decoder(small_model("llama"), {mesh, sequence_parallel});
        fill(decoder, mesh);
        const at::NoGradGuard off;
        const at::Tensor logits = decoder.sharded_logits(at::arange(8), whole_samples(2, 4));
        const at::Tensor tokens =
            sample(logits, 37, group, {.temperature = 0.8, .top_k = 20, .top_p = 0.9}, at::arange(8), 3);
        if (!one.defined()) one = tokens;
        EXPECT_TRUE(tokens.equal(one)) << ranks;
      });
}

TEST(Decoder, EvalDropsNothing) {
  on_tp(1, [&](Mesh& mesh) {
    ModelConfig m = small_model("gpt2");
    m.embd_pdrop = m.resid_pdrop = m.attention_dropout = 0.5;
    Decoder decoder(m, {mesh});
    fill(decoder, mesh);
    const at::Tensor ids = at::arange(8);
    const auto logits = [&](bool training, std::int64_t step) {
      ForwardContext context = whole_samples(2, 4);
      context.training = training;
      context.step = step;
      return decoder.logits(ids, context);
    };
    EXPECT_FALSE(logits(true, 0).equal(logits(true, 1)));
    EXPECT_TRUE(logits(true, 1).equal(logits(true, 1)));
    EXPECT_TRUE(logits(false, 0).equal(logits(false, 1)));
    decoder.eval();
    EXPECT_TRUE(logits(true, 0).equal(logits(false, 1)));
  });
}

TEST(Decoder, RefusesWhatItCannotRun) {
  on_tp(2, [&](Mesh& mesh) {
    const Parallel parallel{mesh};
    ModelConfig m = small_model("llama");
    m.num_attention_heads = m.num_key_value_heads = 3;
    EXPECT_THROW(Decoder(m, parallel), ConfigError);
    m = small_model("qwen3_moe");
    m.num_experts_per_tok = 5;
    EXPECT_THROW(Decoder(m, parallel), ConfigError);
    m = small_model("llama");
    m.hidden_act = "gelu";
    EXPECT_THROW(Decoder(m, parallel), ConfigError);
    m = small_model("gpt2");
    m.hidden_act = "silu";
    EXPECT_THROW(Decoder(m, parallel), ConfigError);
    m = small_model("llama");
    m.rope_scaling.rope_type = "longrope";
    EXPECT_THROW(rope_options(m), ConfigError);
    Decoder decoder(small_model("llama"), parallel);
    fill(decoder, mesh);
    EXPECT_THROW(decoder.hidden(at::zeros({5}, at::kLong), whole_samples(1, 4)), InternalError);
  });
}

}  // namespace
}  // namespace trireme
