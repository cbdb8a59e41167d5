#include "trireme/config/import/megatron_family.hpp"

#include <cmath>

#include "trireme/base/error.hpp"
#include "trireme/config/settings/convert.hpp"

namespace trireme::config {
namespace {

/// No note for a flag that our family implies anyway, but one if it is missing.
void expect_flag(ImportDraft& draft, const std::string& flag, const std::string& otherwise) {
  if (!draft.forget_note(flag)) draft.notes.push_back(text("--swiglu without ", flag, ": ", otherwise));
}

}  // namespace

void add_megatron_family(ImportDraft& draft) {
  if (const Setting* events = draft.find("--tensorboard-dir"); events != nullptr && draft.find("--save") != nullptr)
    draft.note(*events, "event files are written to the run's folder");
  if (draft.find("--hidden-size") == nullptr) return;
  const bool gated = draft.forget_note("--swiglu");
  if (gated) {
    // Megatron's defaults are GPT-2's; our llama differs from them, so a note reports flags that are missing.
    expect_flag(draft, "--normalization = RMSNorm", "Megatron would use LayerNorm, our llama has RMSNorm");
    // --use-rotary-position-embeddings is the older spelling.
    if (!draft.forget_note("--use-rotary-position-embeddings"))
      expect_flag(draft, "--position-embedding-type = rope",
                  "Megatron would use learned positions, our llama has RoPE");
    else
      draft.forget_note("--position-embedding-type = rope");
    expect_flag(draft, "--disable-bias-linear", "Megatron would have biases, our llama has none");
    if (draft.find("--ffn-hidden-size") == nullptr) {
      // Two thirds of 4 h, rounded to a multiple of 64.
      const double hidden = plain_number(draft.find("--hidden-size")->value).value_or(0);
      draft.add("model.intermediate_size", {std::floor(hidden * 8 / 3 / 64) * 64});
    }
  } else {
    draft.forget_note("--normalization = LayerNorm");
    draft.forget_note("--position-embedding-type = learned_absolute");
    draft.add("model.model_type", {"gpt2"});
    draft.add("model.hidden_act", {"gelu"});
  }
  if (draft.find("--num-query-groups") != nullptr) draft.forget_note("--group-query-attention");
}

}  // namespace trireme::config
