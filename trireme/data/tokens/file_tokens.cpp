#include "trireme/data/tokens/file_tokens.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

void check_range(const TokenSource& source, std::int64_t first, std::int64_t count) {
  require(first >= 0 && count >= 0 && first <= source.num_tokens() && count <= source.num_tokens() - first,
          source.name(), ": ", count, " tokens from token ", first, " on leave a row of ", source.num_tokens());
}

}  // namespace

bool is_fingerprint(std::string_view text) {
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

TokenizerRecord read_tokenizer_record(const std::filesystem::path& file, std::int64_t num_tokens) {
  if (!files::is_there(file)) return {};
  const files::RandomReader reader(file);
  constexpr std::uint64_t kMaxBytes = 65'536;
  require<DataError>(reader.size() <= kMaxBytes, reader.shown(), ": ", reader.size(),
                     " bytes; three lines have at most ", kMaxBytes, "\n  fix: remove it if it is not Trireme's");
  std::string words(static_cast<std::size_t>(reader.size()), '\0');
  reader.read(0, std::as_writable_bytes(std::span(words)));
  std::istringstream lines(words);
  TokenizerRecord record;
  std::string count;
  std::getline(lines, record.name);
  std::getline(lines, record.fingerprint);
  std::getline(lines, count);
  require<DataError>(record.fingerprint.empty() || is_fingerprint(record.fingerprint), reader.shown(), ": line 2 is ",
                     files::shown_name(record.fingerprint),
                     "; it must be the tokenizer's fingerprint, 16 hexadecimal digits",
                     "\n  fix: prepare the data again, or remove the file: the tokenizer is then not checked");
  require<DataError>(count == std::to_string(num_tokens), reader.shown(), ": line 3 is ", files::shown_name(count),
                     ", but there are ", num_tokens, " tokens beside it: it belongs to other data",
                     "\n  fix: remove it (the tokenizer is then not checked), or prepare the data again");
  return record;
}

std::string tokenizer_record_text(const TokenizerRecord& record, std::int64_t num_tokens) {
  return text(record.name, "\n", record.fingerprint, "\n", num_tokens, "\n");
}

std::vector<std::int64_t> FileTokens::document_ends(std::int64_t first, std::int64_t count) const {
  check_range(*this, first, count);
  return parts_.ends->within(first, count);
}

void FileTokens::read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const {
  if (!parts_.loss) return TokenSource::read_loss_mask(first, out);
  check_range(*this, first, static_cast<std::int64_t>(out.size()));
  parts_.loss->read(static_cast<std::uint64_t>(first), std::as_writable_bytes(out));
  const auto bad = std::ranges::find_if(out, [](std::uint8_t value) { return value > 1; });
  require<DataError>(bad == out.end(), parts_.loss->shown(), ": byte ", first + (bad - out.begin()), " is ",
                     bad == out.end() ? 0 : int{*bad}, "; a loss mask has 0 or 1 for each token",
                     "\n  fix: fetch the file again; this one is damaged");
}

TokenStorage FileTokens::storage() const {
  const TokenType type = parts_.tokens->type();
  return {std::string(parts_.format), std::string(trireme::data::name(type)), static_cast<int>(bytes_of(type))};
}

TokenPlace FileTokens::place(std::int64_t position) const {
  return {.file = parts_.tokens->shown(), .position = position, .document = parts_.ends->until(position)};
}

ConcatenatedTokens::ConcatenatedTokens(std::string name, std::vector<std::unique_ptr<TokenSource>> parts)
    : name_(std::move(name)), parts_(std::move(parts)), begins_{0} {
  const TokenSource* known = nullptr;
  for (const auto& part : parts_) {
    require<DataError>(part->num_tokens() <= std::numeric_limits<std::int64_t>::max() - begins_.back(), name_,
                       ": more than 2^63 - 1 tokens");
    begins_.push_back(begins_.back() + part->num_tokens());
    if (tokenizer_.name.empty()) tokenizer_.name = part->tokenizer_name();
    if (part->tokenizer_fingerprint().empty()) continue;
    if (known == nullptr) {
      known = part.get();
      tokenizer_ = {part->tokenizer_name(), part->tokenizer_fingerprint()};
    } else if (part->tokenizer_fingerprint() != tokenizer_.fingerprint) {
      throw DataError(text(name_, ": its files were made by different tokenizers\n  ", known->name(), " by ",
                           files::shown_name(tokenizer_.name), ", fingerprint ", tokenizer_.fingerprint, "; ",
                           part->name(), " by ", files::shown_name(part->tokenizer_name()), ", fingerprint ",
                           part->tokenizer_fingerprint(),
                           "\n  fix: keep them in different folders, or prepare one of them again"));
    }
  }
}

template <class Body>
void ConcatenatedTokens::each_part(std::int64_t first, std::int64_t count, const Body& body) const {
  check_range(*this, first, count);
  auto number = static_cast<std::size_t>(std::ranges::upper_bound(begins_, first) - begins_.begin()) - 1;
  for (std::int64_t at = first; at < first + count; ++number) {
    const std::int64_t taken = std::min(begins_[number + 1], first + count) - at;
    if (taken > 0) body(*parts_[number], at - begins_[number], at - first, taken);
    at += taken;
  }
}

std::int64_t ConcatenatedTokens::num_documents() const {
  std::int64_t count = 0;
  for (const auto& part : parts_) count += part->num_documents();
  return count;
}

void ConcatenatedTokens::read(std::int64_t first, std::span<std::uint32_t> out) const {
  each_part(first, static_cast<std::int64_t>(out.size()), [&](const auto& part, auto begin, auto offset, auto count) {
    part.read(begin, out.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count)));
  });
}

std::vector<std::int64_t> ConcatenatedTokens::document_ends(std::int64_t first, std::int64_t count) const {
  std::vector<std::int64_t> found;
  each_part(first, count, [&](const auto& part, auto begin, auto offset, auto taken) {
    for (const std::int64_t end : part.document_ends(begin, taken)) found.push_back(end - begin + offset + first);
  });
  return found;
}

bool ConcatenatedTokens::has_loss_mask() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->has_loss_mask(); });
}

void ConcatenatedTokens::read_loss_mask(std::int64_t first, std::span<std::uint8_t> out) const {
  each_part(first, static_cast<std::int64_t>(out.size()), [&](const auto& part, auto begin, auto offset, auto count) {
    part.read_loss_mask(begin, out.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(count)));
  });
}

TokenStorage ConcatenatedTokens::storage() const {
  TokenStorage widest;
  for (const auto& part : parts_)
    if (TokenStorage each = part->storage(); each.token_bytes > widest.token_bytes) widest = std::move(each);
  return widest;
}

TokenPlace ConcatenatedTokens::place(std::int64_t position) const {
  TokenPlace found;
  each_part(position, 1, [&](const auto& part, auto begin, auto, auto) { found = part.place(begin); });
  return found;
}

}  // namespace trireme::data
