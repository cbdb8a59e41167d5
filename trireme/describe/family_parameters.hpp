#pragma once
// The parameters of the families, by what their names in Hugging Face folders have in common: one source each.
#include "trireme/config/schema/family.hpp"
#include "trireme/describe/parameters.hpp"

namespace trireme {

ModelParameters gpt2_parameters(const ModelConfig& model);
/// All other built-in families: they differ in biases, norms and MLPs.
ModelParameters llama_parameters(const ModelConfig& model);
/// A registered family: its layers and its last norm are its own, the rest is that of the family that it is like.
ModelParameters registered_parameters(const ModelConfig& model, ModelParameters like);

// What they share. Matrices are [outputs, inputs].

Parameter vocabulary_parameter(const ModelConfig& model, const std::string& name, ParameterKind kind, Fill fill,
                               const std::string& theirs);
/// The weight of an RMS norm or layer norm. `fill`: zeros if it is added to 1.
Parameter norm_weight(const std::string& name, std::int64_t features, const std::string& theirs,
                      Fill fill = Fill::ones);
/// tp cuts its outputs, by `how`, or its inputs.
Parameter column_weight(const std::string& name, ParameterKind kind, Shape shape, Cut how,
                        std::vector<TheirTensor> theirs);
Parameter column_bias(const Parameter& weight, const std::string& name, std::vector<TheirTensor> theirs);
Parameter row_weight(const std::string& name, ParameterKind kind, Shape shape, const std::string& theirs);
Parameter row_bias(const Parameter& weight, const std::string& name, const std::string& theirs);

/// The norms of query and key heads. `theirs`: before "q_norm.weight"; empty: files have no names for them.
std::vector<Parameter> head_norms(const ModelConfig& model, const std::string& theirs);

/// The query, key and value heads of an attention layer, one below the other.
Cut attention_heads(const ModelConfig& model);
std::int64_t query_width(const ModelConfig& model);  // of all query heads
std::int64_t kv_width(const ModelConfig& model);     // of all key, or all value, heads
/// The features between the matrices of an expert.
std::int64_t expert_width(const ModelConfig& model);

}  // namespace trireme
