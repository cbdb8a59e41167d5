// Documents that share a sample are trained on as if each were alone.
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/model/decoder.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

ModelConfig model_with_window(const std::string& family, std::int64_t window) {
  ModelConfig m = small_model(family);
  m.max_position_embeddings = 32;
  m.sliding_window = window;
  return m;
}

struct LossAndGradients {
  double loss = 0;
  std::vector<at::Tensor> gradients;
};

/// Of all samples of `lengths[i]` documents each, one after the other, with the same weights.
class PackedDocuments {
 public:
  PackedDocuments(const ModelConfig& model, Mesh& mesh) : decoder_(model, Parallel(mesh)) { fill(decoder_, mesh); }

  void add(const std::vector<std::int64_t>& lengths, std::int64_t first_token, bool apart) {
    const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    ForwardContext context = whole_samples(1, total);
    std::vector<at::Tensor> positions, documents;
    at::Tensor targets = ids(first_token + 1, total);
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      positions.push_back(at::arange(lengths[i]));
      documents.push_back(at::full({lengths[i]}, static_cast<std::int64_t>(i), at::kLong));
      begin += lengths[i];
      targets[begin - 1] = CrossEntropyOptions{}.ignore_index;  // the next document
    }
    if (apart) {
      context.document_positions_T = at::cat(positions);
      context.documents_bS = at::cat(documents).unsqueeze(0);
    }
    const at::Tensor loss = decoder_.loss(ids(first_token, total), targets, context).loss;
    loss.backward();
    result_.loss += loss.item<double>();
  }
  LossAndGradients result() {
    for (const Param& param : params_of(decoder_)) result_.gradients.push_back(param.value.grad().clone());
    return result_;
  }

 private:
  static at::Tensor ids(std::int64_t first, std::int64_t count) { return at::arange(first, first + count) * 7 % 37; }

  Decoder decoder_;
  LossAndGradients result_;
};

LossAndGradients computed(const ModelConfig& model, bool packed, bool apart) {
  const std::vector<std::int64_t> lengths = {5, 1, 9, 3};
  LossAndGradients out;
  on_tp(1, [&](Mesh& mesh) {
    PackedDocuments documents(model, mesh);
    std::int64_t first = 0;
    if (packed) documents.add(lengths, 0, apart);
    for (const std::int64_t length : packed ? std::vector<std::int64_t>() : lengths) {
      documents.add({length}, first, apart);
      first += length;
    }
    out = documents.result();
  });
  return out;
}

TEST(Documents, PackedOrAloneTheirLossesAndGradientsAreTheSame) {
  for (const auto& [family, window] : {std::pair("llama", 0), std::pair("mistral", 4), std::pair("gpt2", 0)}) {
    const ModelConfig model = model_with_window(family, window);
    const LossAndGradients alone = computed(model, false, false), packed = computed(model, true, true);
    EXPECT_NEAR(packed.loss / alone.loss, 1, 1e-12) << family;
    ASSERT_EQ(packed.gradients.size(), alone.gradients.size());
    for (std::size_t i = 0; i < alone.gradients.size(); ++i)
      EXPECT_LE((packed.gradients[i] - alone.gradients[i]).norm().item<double>(),
                1e-12 * alone.gradients[i].norm().item<double>() + 1e-15)
          << family << " " << i;
    const LossAndGradients mixed = computed(model, true, false);
    EXPECT_GT(std::abs(mixed.loss / alone.loss - 1), 1e-6) << family << ": otherwise they see each other";
  }
}

}  // namespace
}  // namespace trireme
