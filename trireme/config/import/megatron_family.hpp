#pragma once
// The model family that the flags of a Megatron script imply.
#include "trireme/config/import/import_draft.hpp"

namespace trireme::config {

/// llama with SwiGLU, else GPT-2. Notes what Megatron's defaults would do otherwise.
void add_megatron_family(ImportDraft& draft);

}  // namespace trireme::config
