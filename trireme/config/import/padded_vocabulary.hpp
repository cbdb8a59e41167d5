#pragma once
// Megatron and nanotron pad the vocabulary to a multiple.
#include "trireme/config/import/import_draft.hpp"
#include "trireme/config/schema/config.hpp"

namespace trireme::config {

/// A file with a model pads even if it does not say to what: adds that trainer's default.
void add_default_padding(ImportDraft& draft);

/// They pad a vocabulary that is given; ours is padded only if it is the tokenizer's. `model`: what was translated.
void pad_given_vocabulary(ImportDraft& draft, const ModelConfig& model);

}  // namespace trireme::config
