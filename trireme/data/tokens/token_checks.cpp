#include "trireme/data/tokens/token_checks.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/data/tokens/lanes.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

std::string shown_tokenizer(const std::string& name, const std::string& fingerprint) {
  return text(name.empty() ? "of an unknown name" : files::shown_name(name), ", fingerprint ",
              fingerprint.empty() ? "unknown" : fingerprint);
}

}  // namespace

void check_tokenizer(const TokenSource& source, const std::string& tokenizer_name, const std::string& fingerprint) {
  const std::string made_by = source.tokenizer_fingerprint();
  if (made_by.empty() || fingerprint.empty() || made_by == fingerprint) return;
  throw DataError(text(
      source.name(), " was made by a different tokenizer than the run's\n  the data says tokenizer ",
      shown_tokenizer(source.tokenizer_name(), made_by), "; [tokenizer] path is ",
      shown_tokenizer(tokenizer_name, fingerprint), "\n  fix: set tokenizer.path to the one that made the data",
      " (and model.vocab_size to its size), or prepare the data again:\n       trireme data prepare TEXT.jsonl -t ",
      tokenizer_name, " -o ", source.name()));
}

void check_vocabulary(const TokenSource& source, std::int64_t first, std::span<const std::uint32_t> ids,
                      std::int64_t vocab_size) {
  if (ids.empty() || std::int64_t{largest(ids)} < vocab_size) return;
  const auto bad = std::ranges::find_if(ids, [&](std::uint32_t id) { return std::int64_t{id} >= vocab_size; });
  const TokenPlace place = source.place(first + (bad - ids.begin()));
  std::string message = text("token ", thousands(*bad), " at position ", thousands(place.position), " of ", place.file);
  if (place.document >= 0) message += text(" (document ", thousands(place.document), ", both from 0)");
  message += text(" is outside the vocabulary (vocab_size = ", thousands(vocab_size), ")");
  if (!source.tokenizer_name().empty() || !source.tokenizer_fingerprint().empty())
    message +=
        text("\n  the data says tokenizer ", shown_tokenizer(source.tokenizer_name(), source.tokenizer_fingerprint()));
  throw DataError(text(
      message, "\n  fix: set tokenizer.path and model.vocab_size to those of the data's tokenizer, or prepare the data",
      " again:\n       trireme data prepare TEXT.jsonl -t TOKENIZER -o ", source.name()));
}

}  // namespace trireme::data
