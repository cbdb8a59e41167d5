#pragma once
// Synthetic tokens with a learnable structure, without files: for tests, examples and benchmarks.
#include <cstdint>
#include <string>

#include "trireme/data/sampling/permutation.hpp"
#include "trireme/data/tokens/token_source.hpp"

namespace trireme::data {

/// Documents of 256 tokens (the last may be shorter). A document begins with a random token; each next token is, with
/// probability 0.9, the successor of the previous one in a fixed permutation of the vocabulary, and otherwise random.
/// So a model that sees one previous token can reach entropy_per_token(), and none can do better on average.
class SyntheticTokens final : public TokenSource {
 public:
  SyntheticTokens(std::uint64_t seed, std::int64_t vocab_size, std::int64_t num_tokens);

  const std::string& name() const override { return name_; }
  std::int64_t num_tokens() const override { return num_tokens_; }
  std::int64_t num_documents() const override { return (num_tokens_ + kDocument - 1) / kDocument; }
  void read(std::int64_t first, std::span<std::uint32_t> out) const override;
  std::vector<std::int64_t> document_ends(std::int64_t first, std::int64_t count) const override;

  std::int64_t vocab_size() const { return vocab_size_; }
  /// The most likely next token.
  std::uint32_t usual_next(std::uint32_t token) const { return static_cast<std::uint32_t>(next_(token)); }

  /// The minimum mean cross-entropy in nats: of a token inside a document, given the previous one; of a document's
  /// first token; and averaged over all tokens of the source.
  double entropy_inside() const;
  double entropy_of_first() const;
  double entropy_per_token() const;

  static constexpr std::int64_t kDocument = 256;
  static constexpr double kUsual = 0.9;

 private:
  std::string name_;
  std::int64_t vocab_size_, num_tokens_;
  RandomStream stream_;
  Permutation next_;
};

}  // namespace trireme::data
