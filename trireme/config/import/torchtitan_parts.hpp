#pragma once
// The parts of a torchtitan file that no single key translates: its model by flavor, float8, initial
// weights, chunks of a pipeline, validation.
#include <map>
#include <optional>
#include <string>

#include "trireme/config/import/import_draft.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme::config {

class TorchtitanParts {
 public:
  /// Keeps a setting that belongs to one of these parts; false: it is to be translated by itself.
  bool take(const Setting& s);

  void add_model(ImportDraft& draft);
  /// model.converters and what is under [quantize.linear.float8], or [float8] before 0.2.
  void add_float8(ImportDraft& draft) const;
  /// Interleaved1F1B has two chunks a rank, unless the layers of a chunk are given.
  void add_chunks(ImportDraft& draft, const Config& so_far) const;
  /// torchtitan begins with weights only if checkpoints are on. Those of Hugging Face are ours, too.
  void add_initial_weights(ImportDraft& draft) const;
  /// torchtitan validates only if it is switched on; its steps are of every replica.
  void add_validation(ImportDraft& draft, const Config& so_far) const;

 private:
  std::map<std::string, Setting> flavor_, validation_, float8_;
  std::optional<Setting> converters_, layers_per_stage_;
  std::optional<Setting> initial_weights_;   // checkpoint.initial_load_path
  std::map<std::string, Value> checkpoint_;  // the other keys in [checkpoint]
};

}  // namespace trireme::config
