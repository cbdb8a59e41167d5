#pragma once
// The names of our config keys in other trainers, which are accepted as aliases.
#include <string>
#include <vector>

#include "trireme/config/translate/translations.hpp"

namespace trireme::config {

enum class Framework { nanotron, torchtitan, megatron, deepspeed, hf_trainer, hf_config };
const char* name(Framework framework);

struct Alias {
  Framework framework;
  std::string foreign;  // "tokens.train_steps", "--train-iters"; * matches an index
  std::string key;      // ours
  Translation translate;
  /// Above 0 if it reads other settings (`so_far`): it is translated after those with a lower number.
  int late = 0;
};

const std::vector<Alias>& aliases();

struct AliasMatch {
  const Alias* alias;
  std::string key;  // ours, with indices filled in
};
/// The aliases that match `path`: a full foreign path, or its last word in our own section
/// (lr_scheduler.lr_warmup_steps). If several frameworks know the path, only those of one; several if one foreign key
/// sets several of ours.
std::vector<AliasMatch> find_aliases(const std::string& path);

/// "(nanotron: lr_warmup_steps, Megatron: --lr-warmup-iters both work)"; empty if the key has no other name.
std::string other_names(const std::string& key);
/// The name of a key in one framework, as a user would write it there; empty if it has none.
std::string foreign_name(const std::string& key, Framework framework);

}  // namespace trireme::config
