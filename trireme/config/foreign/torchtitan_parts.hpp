#pragma once
// The parts of a torchtitan file that no single key translates: its model by flavor, initial weights, validation.
#include <map>
#include <optional>
#include <string>

#include "trireme/config/foreign/import_draft.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme::config {

class TorchtitanParts {
 public:
  /// Keeps a setting that belongs to one of these parts; false: it is to be translated by itself.
  bool take(const Setting& s);

  void add_model(ImportDraft& draft);
  /// torchtitan begins with weights only if checkpoints are on. Those of Hugging Face are ours, too.
  void add_initial_weights(ImportDraft& draft) const;
  /// torchtitan validates only if it is switched on; its steps are of every replica.
  void add_validation(ImportDraft& draft, const Config& so_far) const;

 private:
  std::map<std::string, Setting> flavor_, validation_;
  std::optional<Setting> initial_weights_;   // checkpoint.initial_load_path
  std::map<std::string, Value> checkpoint_;  // the other keys in [checkpoint]
};

}  // namespace trireme::config
