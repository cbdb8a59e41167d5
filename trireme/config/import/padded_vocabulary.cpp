#include "trireme/config/import/padded_vocabulary.hpp"

namespace trireme::config {
namespace {

void pad_by_default(ImportDraft& draft, const char* model, const char* multiple, std::int64_t standard) {
  if (draft.find(model) != nullptr && draft.find(multiple) == nullptr && !draft.open.contains("model.vocab_multiple"))
    draft.add(multiple, {standard});
}

}  // namespace

void add_default_padding(ImportDraft& draft) {
  pad_by_default(draft, "--hidden-size", "--make-vocab-size-divisible-by", 128);
  pad_by_default(draft, "model.model_config.hidden_size", "model.make_vocab_size_divisible_by", 1);
}

void pad_given_vocabulary(ImportDraft& draft, const ModelConfig& model) {
  const std::int64_t size = model.vocab_size, multiple = model.vocab_multiple;
  if (size % multiple == 0) return;
  for (Setting& s : draft.taken)
    if (s.path == "--vocab-size" || s.path == "model.model_config.vocab_size")
      s.value = {(size / multiple + 1) * multiple};
}

}  // namespace trireme::config
