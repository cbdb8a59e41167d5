#include "trireme/data/tokens/merge.hpp"

#include <algorithm>
#include <memory>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/inspect.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/data/tokens/output_folder.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

using Sources = std::vector<std::unique_ptr<TokenSource>>;

TokenizerRecord common_tokenizer(const Sources& sources, bool force) {
  TokenizerRecord common;
  const TokenSource* known = nullptr;
  for (const auto& source : sources) {
    const TokenizerRecord each{source->tokenizer_name(), source->tokenizer_fingerprint()};
    if (each.fingerprint.empty()) {
      if (common.name.empty()) common.name = each.name;
      continue;
    }
    if (known == nullptr) {
      known = source.get();
      common = each;
    }
    if (each.fingerprint == common.fingerprint) continue;
    if (force) return {};  // there is no common tokenizer
    throw DataError(text(known->name(), " and ", source->name(), " were made by different tokenizers\n  ",
                         files::shown_name(common.name), ", fingerprint ", common.fingerprint, "; ",
                         files::shown_name(each.name), ", fingerprint ", each.fingerprint,
                         "\n  fix: prepare one of them again; --force merges them anyway"));
  }
  return common;
}

/// Determined from the files, since no format stores the vocabulary size. Four-byte tokens stay four bytes.
std::int64_t vocabulary(const Sources& sources, const DataHooks& hooks) {
  std::int64_t size = 1;
  for (const auto& source : sources) {
    if (source->storage().token_bytes > 2) size = std::max<std::int64_t>(size, 65'537);
    size = std::max(
        size,
        std::int64_t{
            inspect_tokens(*source, {.progress = {[](const DataProgress&) {}}, .stopped = hooks.stopped}).max_id} +
            1);
  }
  return size;
}

void copy(const TokenSource& source, TokenWriter& writer, bool masked, const std::function<void()>& after_part) {
  constexpr std::int64_t kPart = std::int64_t{1} << 18;
  std::vector<std::uint32_t> ids;
  std::vector<std::uint8_t> mask;
  std::int64_t begin = 0;
  for (std::int64_t first = 0; first < source.num_tokens(); first += kPart) {
    for (const std::int64_t end : source.document_ends(first, std::min(kPart, source.num_tokens() - first))) {
      ids.resize(static_cast<std::size_t>(end - begin));
      source.read(begin, ids);
      if (masked) {
        mask.resize(ids.size());
        source.read_loss_mask(begin, mask);
      }
      writer.append(ids, mask);
      begin = end;
    }
    after_part();
  }
}

}  // namespace

Merged merge_tokens(const MergeOptions& options, const DataHooks& hooks) {
  Sources sources;
  std::int64_t num_tokens = 0;
  for (const std::string& input : options.inputs) {
    sources.push_back(open_tokens(input, {.document_end = options.document_end}));
    num_tokens += sources.back()->num_tokens();
  }
  const bool masked = std::ranges::any_of(sources, [](const auto& source) { return source->has_loss_mask(); });
  Merged result;
  result.tokenizer = common_tokenizer(sources, options.force);
  const OutputFolder folder(options.out);
  const auto writer = write_tokens(options.format, options.out,
                                   {.vocab_size = vocabulary(sources, hooks),
                                    .tokenizer = result.tokenizer,
                                    .loss_mask = masked,
                                    .before_step = {}});
  for (const auto& source : sources)
    copy(*source, *writer, masked, [&] {
      if (hooks.stopped()) throw Interrupted("interrupted; nothing was written");
      hooks.progress({static_cast<std::uint64_t>(writer->num_tokens()), static_cast<std::uint64_t>(num_tokens), 0,
                      writer->num_documents(), writer->num_tokens()});
    });
  writer->settle();
  if (hooks.stopped()) throw Interrupted("interrupted; nothing was written");
  writer->finish();
  result.documents = writer->num_documents();
  result.tokens = writer->num_tokens();
  return result;
}

}  // namespace trireme::data
