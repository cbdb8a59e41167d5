#pragma once
// The names that other trainers give to our keys, so that their users' words parse here.
#include <string>
#include <vector>

#include "trireme/config/foreign/translations.hpp"

namespace trireme::config {

enum class Framework { nanotron, torchtitan, megatron, deepspeed, hf_trainer, hf_config };
const char* name(Framework framework);

struct Alias {
  Framework framework;
  std::string foreign;  // "tokens.train_steps", "--train-iters"; * stands for an index
  std::string key;      // ours
  Translation translate;
  /// It reads other settings (`so_far`), so it has to wait until they are known.
  bool late = false;
};

const std::vector<Alias>& aliases();

struct AliasMatch {
  const Alias* alias;
  std::string key;  // ours, with indices filled in
};
/// The aliases that `path` may stand for: a foreign path as a whole, or its last word in our own section
/// (lr_scheduler.lr_warmup_steps). Those of one framework only when several know the path; several when one word says
/// several things.
std::vector<AliasMatch> find_aliases(const std::string& path);

/// "(nanotron: lr_warmup_steps, Megatron: --lr-warmup-iters both work)"; empty when the key has no other name.
std::string other_names(const std::string& key);
/// The foreign name of a key in one framework, as a person would write it there; empty when it has none.
std::string foreign_name(const std::string& key, Framework framework);

}  // namespace trireme::config
