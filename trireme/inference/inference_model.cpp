#include "trireme/inference/inference_model.hpp"

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/model/stage.hpp"
#include "trireme/nn/init_scope.hpp"
#include "trireme/train/setup/source_values.hpp"

namespace trireme {

ModelConfig model_for_inference(const checkpoint::ModelSource& source) {
  ModelConfig model = source.model();
  model.embd_pdrop = model.resid_pdrop = model.attention_dropout = 0;
  model.router_aux_loss_coef = model.router_z_loss_coef = 0;
  model.expert_capacity_factor = 0;  // router_bias_update_rate stays: it says that routers have a bias
  return model;
}

InferenceModel::InferenceModel(const ModelConfig& model, const checkpoint::ModelSource& source, Mesh& mesh,
                               at::Device device, at::ScalarType dtype)
    : model_(model), mesh_(mesh), device_(device), dtype_(dtype) {
  ParallelismConfig layout;
  layout.pp = mesh.grid().degree(Axis::pp);
  require<ConfigError>(layout.pp <= model.num_hidden_layers, "pp = ", layout.pp, ": the model has ",
                       model.num_hidden_layers, " layers");
  std::vector<DecoderPart> parts = decoder_parts(model, pipeline_chunks(model, layout), mesh);
  require(parts.size() == 1, "inference: ", parts.size(), " chunks on one rank");
  const InitScope scope(device, dtype);
  decoder_ = std::make_shared<Decoder>(model, Parallel(mesh), std::move(parts[0]));
  decoder_->eval();
  const std::vector<Param> params = params_of(*decoder_);
  for (const Param& param : params) param.value.requires_grad_(false);
  fill_params(params, source_values(source, mesh));
  mesh.world_group().barrier().wait();
}

bool InferenceModel::is_last_stage() const { return decoder_->part().has_head; }

at::Tensor InferenceModel::hidden(const at::Tensor& ids_T, const ForwardContext& context) {
  Group& pp = mesh_.group(Axis::pp);
  at::Tensor input = ids_T;
  if (!decoder_->part().has_embedding) {
    input = at::empty({context.tokens(), model_.hidden_size}, at::TensorOptions(dtype_).device(device_));
    pp.recv_(input, pp.rank() - 1).wait();
  }
  const at::Tensor out_TD = decoder_->hidden(input, context);
  if (is_last_stage()) return out_TD;
  pp.send(out_TD.contiguous(), pp.rank() + 1).wait();
  return {};
}

}  // namespace trireme
