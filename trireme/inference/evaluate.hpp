#pragma once
// The loss of a model on token files, on any layout.
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/mesh.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme {

struct Evaluation {
  double loss = 0;          // nats per token
  std::int64_t tokens = 0;  // targets that count
  std::int64_t samples = 0;
};

struct EvaluationData {
  std::vector<std::string> files;  // token files
  std::int64_t seq_len = 1024;
  std::int64_t samples = 0;  // 0: all
  std::int64_t micro_batch_size = 1;
  DataStage scopes = {};       // attention, positions and packing
  std::string tokenizer = {};  // path of the model's: files of another one are refused; empty: not known
};

/// A config that evaluates the weights in `checkpoint` on `layout`, with `dtype`. ConfigError with all that does not
/// fit; DataError for the files.
Config evaluation_config(const ModelConfig& model, const std::string& checkpoint, const EvaluationData& data,
                         const ParallelismConfig& layout, const std::string& dtype);

/// Collective over the mesh of the layout. The same on all ranks.
Evaluation evaluate(Config config, Mesh& mesh, at::Device device);

}  // namespace trireme
