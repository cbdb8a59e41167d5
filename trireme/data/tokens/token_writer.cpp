#include "trireme/data/tokens/token_writer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/data/tokens/datatrove_tokens.hpp"
#include "trireme/data/tokens/lanes.hpp"
#include "trireme/data/tokens/llmc_tokens.hpp"
#include "trireme/data/tokens/megatron_tokens.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::data {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"datatrove", "megatron", "llmc"};

/// The limit of Megatron's i32.
std::int64_t most_ids(TokenFormat format) { return std::int64_t{1} << (format == TokenFormat::megatron ? 31 : 32); }

}  // namespace

std::string_view name(TokenFormat format) { return kNames.at(static_cast<std::size_t>(format)); }

std::optional<TokenFormat> token_format(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<TokenFormat>(found - kNames.begin());
}

TokenWriter::TokenWriter(std::string shown, TokenFormat format, TokenWriterOptions options)
    : shown_(std::move(shown)), options_(std::move(options)) {
  require<DataError>(options_.vocab_size >= 1 && options_.vocab_size <= most_ids(format), shown_,
                     ": vocab_size = ", options_.vocab_size, "; the format ", name(format), " has room for 1 to ",
                     most_ids(format));
  require<DataError>(!options_.loss_mask || format == TokenFormat::datatrove, shown_, ": the format ", name(format),
                     " has no place for a loss mask\n  fix: write the format datatrove");
  require<DataError>(!files::has_control_character(options_.tokenizer.name), shown_, ": the tokenizer's name ",
                     files::shown_name(options_.tokenizer.name),
                     " has control characters; it is written on a line of text");
  const std::string& fingerprint = options_.tokenizer.fingerprint;
  require(fingerprint.empty() || is_fingerprint(fingerprint), shown_, ": fingerprint ", files::shown_name(fingerprint),
          " is not 16 hexadecimal digits");
}

void TokenWriter::append(std::span<const std::uint32_t> ids, std::span<const std::uint8_t> loss_mask) {
  require(usable_, shown_, ": a document is appended after finish() or after an error");
  require(loss_mask.size() == (options_.loss_mask ? ids.size() : 0), shown_, ": a loss mask of ", loss_mask.size(),
          " for a document of ", ids.size(), " tokens");
  require(std::ranges::all_of(loss_mask, [](std::uint8_t value) { return value <= 1; }), shown_,
          ": a loss mask is 0 or 1");
  if (std::int64_t{largest(ids)} >= options_.vocab_size) {
    const auto bad =
        std::ranges::find_if(ids, [&](std::uint32_t id) { return std::int64_t{id} >= options_.vocab_size; });
    throw DataError(text(shown_, ": token ", thousands(*bad), " of document ", thousands(num_documents_),
                         " is outside the vocabulary (vocab_size = ", thousands(options_.vocab_size), ")"));
  }
  usable_ = false;  // set again after a successful write
  write(ids, loss_mask);
  usable_ = true;
  num_tokens_ += static_cast<std::int64_t>(ids.size());
  ++num_documents_;
}

void TokenWriter::settle() {
  require(usable_, shown_, ": finish() after finish() or after an error");
  require<DataError>(num_tokens_ > 0, shown_, ": ", num_documents_,
                     " documents, none with a token: there is nothing to write",
                     "\n  fix: look at the input: is it empty, or its text in another field?");
  usable_ = false;
  complete();
  files_.settle();
  settled_ = true;
}

void TokenWriter::finish() {
  if (!settled_) settle();
  settled_ = false;
  files_.publish(options_.before_step);
}

std::unique_ptr<TokenWriter> write_tokens(TokenFormat format, const std::filesystem::path& path,
                                          TokenWriterOptions options) {
  switch (format) {
    case TokenFormat::datatrove: return write_datatrove(path, std::move(options));
    case TokenFormat::megatron: return write_megatron(path, std::move(options));
    case TokenFormat::llmc: return write_llmc(path, std::move(options));
  }
  throw InternalError("a token format that does not exist");
}

}  // namespace trireme::data
