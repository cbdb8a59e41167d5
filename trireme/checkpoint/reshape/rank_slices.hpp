#pragma once
// Which slices of a model's tensors each rank of a layout saves.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/format/manifest.hpp"
#include "trireme/checkpoint/format/shard_writer.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/layout/param_layout.hpp"

namespace trireme::checkpoint {

// Note [Which rank saves what]
//   pp      a parameter is saved by its pipeline stage (describe/pipeline.hpp)
//   tp      each rank saves its pieces; of ranks with the same piece (a norm, a shared KV head) saver_of() names one
//   dp, cp  these ranks hold the same pieces: one after the other, the parameters of a stage are a sequence of rows,
//           of which each rank saves an equal part, cut between two rows
//   edp     the same for the weights of experts, which are a sequence of their own
// Over all ranks every element is saved once. A training run differs in the last point: it cuts each bucket of ZeRO.
class RankSlices {
 public:
  /// Expects what stored_config() has checked, and a valid layout. With random states only if `parallelism` has as many
  /// ranks as the checkpoint. The manifest must outlive this.
  RankSlices(const Manifest& manifest, const ModelConfig& model, const ParallelismConfig& parallelism);

  int world() const { return grid_.size(); }
  const Grid& grid() const { return grid_; }
  bool keeps_random() const { return keeps_random_; }
  /// In the order of the parameters, each at most kMaxSliceBytes.
  std::vector<PlannedSlice> of_rank(int rank) const;

 private:
  struct Parameter {
    std::string name;
    ParamSpec spec;
    std::vector<const StoredTensor*> tensors;  // the weight and its states
    std::int64_t rows = 0, row_elements = 0;   // of a rank's part
    std::int64_t first_element = 0;            // in the sequence of its stage
  };
  struct Stage {
    std::vector<Parameter> parameters;
    std::map<View, std::int64_t> elements = {};  // of a rank, with padding
  };

  static Range rows_of_part(const Parameter& parameter, std::int64_t elements, std::int64_t part, std::int64_t parts);

  Grid grid_;
  ParamLayout layout_;
  std::vector<Stage> stages_;
  bool keeps_random_ = false;
  std::map<int, const StoredTensor*> random_;  // by rank
};

}  // namespace trireme::checkpoint
