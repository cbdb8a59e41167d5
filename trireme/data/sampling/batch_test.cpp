#include "trireme/data/sampling/batch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "trireme/data/sampling/synthetic.hpp"
#include "trireme/data/sampling/validation.hpp"
#include "trireme/testing/layout_helpers.hpp"
#include "trireme/testing/memory_tokens.hpp"

namespace trireme::data {
namespace {

using ::testing::HasSubstr;
using Numbers = std::vector<std::int64_t>;

TokenBatch batch_of(const std::vector<Sample>& samples, std::int64_t seq_len, const BatchOptions& options) {
  TokenBatch batch;
  BatchMaker(options).make(samples, seq_len, batch);
  return batch;
}

// Documents "0 1 2", "3 4", "5 6 7 8 9 10 11".
const std::shared_ptr<const TokenSource>& three_documents() {
  static const std::shared_ptr<const TokenSource> source = std::make_shared<MemoryTokens>(
      "three", std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, Numbers{3, 5, 12});
  return source;
}

TEST(Batch, LabelsAreTheNextTokens) {
  const TokenBatch batch = batch_of({{.tokens = three_documents().get(), .first_token = 0, .row = 7},
                                     {.tokens = three_documents().get(), .first_token = 4, .row = 8}},
                                    4, {.vocab_size = 12});
  EXPECT_EQ(batch.tokens, (Numbers{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(batch.labels, (Numbers{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(batch.rows, (Numbers{7, 8}));
  EXPECT_EQ(batch.num_valid_labels, 8);
  EXPECT_EQ(batch.loss_mask, std::vector<std::uint8_t>(8, 1));
  EXPECT_TRUE(batch.documents.empty());
  EXPECT_EQ(batch.sequence_starts, (std::vector<std::int32_t>{0, 4, 8}));
}

TEST(Batch, DocumentsThatDoNotSeeEachOther) {
  const BatchOptions options{.vocab_size = 12, .attend_across_documents = false, .restart_positions = true};
  const TokenBatch batch = batch_of(
      {{.tokens = three_documents().get(), .first_token = 0}, {.tokens = three_documents().get(), .first_token = 1}}, 5,
      options);
  EXPECT_EQ(batch.tokens, (Numbers{0, 1, 2, 3, 4, 1, 2, 3, 4, 5}));
  EXPECT_EQ(batch.documents, (std::vector<std::int32_t>{0, 0, 0, 1, 1, 0, 0, 1, 1, 2}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 0, 1, 0, 1, 0, 1, 0}));
  // The first sample's last label is the first token of the third document.
  EXPECT_EQ(batch.loss_mask, (std::vector<std::uint8_t>{1, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(batch.num_valid_labels, 6);
  EXPECT_EQ(batch.sequence_starts, (std::vector<std::int32_t>{0, 3, 5, 7, 9, 10}));
}

TEST(Batch, PaddingCountsInNoLoss) {
  const ValidationSet validation({three_documents()}, 4);  // two samples
  const TokenBatch batch = batch_of(validation.samples(0, 3), 4, {.vocab_size = 12});
  EXPECT_EQ(batch.num_valid_labels, 8);
  EXPECT_EQ(batch.rows, (Numbers{0, 1, 2}));
  EXPECT_EQ(Numbers(batch.tokens.end() - 4, batch.tokens.end()), (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(std::vector(batch.loss_mask.end() - 4, batch.loss_mask.end()), (std::vector<std::uint8_t>{0, 0, 0, 0}));
}

TEST(Batch, WhatASampleHasNoDocumentForIsPadding) {
  const BatchOptions apart{.vocab_size = 12, .attend_across_documents = false, .restart_positions = true};
  const Sample sample{.tokens = three_documents().get(), .first_token = 0, .num_tokens = 5};  // "0 1 2", "3 4"
  const TokenBatch batch = batch_of({sample}, 7, apart);
  EXPECT_EQ(batch.tokens, (Numbers{0, 1, 2, 3, 4, 0, 0}));
  EXPECT_EQ(batch.documents, (std::vector<std::int32_t>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(batch.positions, (Numbers{0, 1, 2, 0, 1, 0, 1}));
  EXPECT_EQ(batch.loss_mask, (std::vector<std::uint8_t>{1, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(batch.num_valid_labels, 3);
  const TokenBatch together = batch_of({sample}, 7, {.vocab_size = 12});
  EXPECT_EQ(together.loss_mask, (std::vector<std::uint8_t>{1, 1, 1, 1, 0, 0, 0}));
  // The last token of a full sample is only a label.
  const TokenBatch full = batch_of({sample}, 4, apart);
  EXPECT_EQ(full.labels, (Numbers{1, 2, 3, 4}));
  EXPECT_EQ(full.loss_mask, (std::vector<std::uint8_t>{1, 1, 0, 1}));
}

TEST(Batch, ATokenOutsideTheVocabularyIsNamedWithItsPlaceOnEveryCpRank) {
  std::vector<std::uint32_t> tokens(5'000, 7);
  tokens[1'234] = 128'001;
  const MemoryTokens source("data/fineweb.ds", tokens);
  for (const int rank : {0, 1})
    EXPECT_THAT(message_of<DataError>([&] {
                  batch_of({{.tokens = &source, .first_token = 1'200}}, 64,
                           {.vocab_size = 50'257, .context = {.cp = 2}, .cp_rank = rank});
                }),
                HasSubstr("token 128,001 at position 1,234 of data/fineweb.ds is outside the vocabulary (vocab_size = "
                          "50,257)"));
  // Also for the label of the last token; and the largest allowed id.
  EXPECT_THROW(batch_of({{.tokens = &source, .first_token = 1'170}}, 64, {.vocab_size = 128'001}), DataError);
  EXPECT_NO_THROW(batch_of({{.tokens = &source, .first_token = 1'200}}, 64, {.vocab_size = 128'002}));
  EXPECT_NO_THROW(batch_of({{.tokens = &source, .first_token = 1'169}}, 64, {.vocab_size = 8}));
}

TEST(Batch, WrongOptionsAreNamed) {
  EXPECT_THROW(BatchMaker({.vocab_size = 0}), ConfigError);
  EXPECT_THROW(BatchMaker({.vocab_size = 8, .context = {.cp = 2}, .cp_rank = 2}), ConfigError);
  EXPECT_THAT(message_of<ConfigError>([] { batch_of({{}}, 6, {.vocab_size = 8, .context = {.cp = 2}}); }),
              HasSubstr("seq_len = 6 is not divisible by 2 x cp = 4"));
}

/// Documents of random lengths, some empty, with or without a mask.
MemoryTokens random_documents(std::int64_t count) {
  std::vector<std::uint32_t> tokens(static_cast<std::size_t>(count));
  for (std::uint32_t& token : tokens) token = static_cast<std::uint32_t>(pick(0, 99));
  std::vector<std::uint8_t> mask;
  if (toss())
    for (std::int64_t i = 0; i < count; ++i) mask.push_back(toss());
  Numbers ends;
  for (std::int64_t end = 0; end < count;) ends.push_back(end = std::min<std::int64_t>(count, end + pick(0, 9)));
  return MemoryTokens("random", tokens, ends, mask);
}

/// Independent reference implementation: token by token, querying the source for each.
TokenBatch naive_batch(const std::vector<Sample>& samples, std::int64_t seq_len, const BatchOptions& options) {
  TokenBatch batch;
  batch.num_samples = static_cast<std::int64_t>(samples.size());
  batch.seq_len = seq_len;
  const auto token_at = [](const TokenSource& source, std::int64_t i) {
    std::uint32_t token = 0;
    source.read(i, {&token, 1});
    return static_cast<std::int64_t>(token);
  };
  const auto counts = [](const TokenSource& source, std::int64_t i) {
    std::uint8_t mask = 1;
    if (source.has_loss_mask()) source.read_loss_mask(i, {&mask, 1});
    return mask;
  };
  const auto begins = [](const TokenSource& source, std::int64_t i) { return !source.document_ends(i - 1, 1).empty(); };
  std::vector<std::int64_t> mine;
  for (const Range& range : options.context.tokens(seq_len, options.cp_rank))
    for (std::int64_t i = range.begin; i < range.end; ++i) mine.push_back(i);
  batch.local_length = static_cast<std::int64_t>(mine.size());
  for (std::size_t row = 0; row < samples.size(); ++row) {
    const Sample& sample = samples[row];
    const TokenSource& source = *sample.tokens;
    batch.rows.push_back(sample.row);
    for (std::int64_t i = 0; i < seq_len; ++i)
      if (i == 0 || (!options.attend_across_documents && begins(source, sample.first_token + i)))
        batch.sequence_starts.push_back(static_cast<std::int32_t>(static_cast<std::int64_t>(row) * seq_len + i));
    for (std::int32_t i = 0, document = 0; i < seq_len && !options.attend_across_documents; ++i) {
      document += i > 0 && begins(source, sample.first_token + i);
      batch.documents.push_back(document);
    }
    for (const std::int64_t i : mine) {
      const std::int64_t at = sample.first_token + i;
      std::int64_t position = 0;
      for (std::int64_t t = 1; t <= i; ++t) {
        const bool border = begins(source, sample.first_token + t);
        position = border && options.restart_positions ? 0 : position + 1;
      }
      const bool valid = counts(source, at + 1) == 1 && (options.attend_across_documents || !begins(source, at + 1));
      batch.tokens.push_back(token_at(source, at));
      batch.labels.push_back(token_at(source, at + 1));
      batch.loss_mask.push_back(valid);
      batch.num_valid_labels += valid;
      batch.positions.push_back(position);
      if (options.restart_positions) batch.places.push_back(i);
    }
  }
  batch.sequence_starts.push_back(static_cast<std::int32_t>(batch.num_samples * seq_len));
  return batch;
}

RC_GTEST_PROP(BatchProperty, EqualsTheNaiveOneForAnyDocumentsAndOptions, ()) {
  const int cp = pick(1, 3);
  const std::int64_t seq_len = cp == 1 ? pick(1, 50) : 2 * cp * pick(1, 8);
  const MemoryTokens source = random_documents(200);
  BatchOptions options{
      .vocab_size = 100, .attend_across_documents = toss(), .restart_positions = toss(), .context = {.cp = cp}};
  if (toss()) options.context.method = ContextMethod::ring_contiguous;
  if (toss()) options.context = {.cp = cp, .method = ContextMethod::ulysses, .ulysses = cp};
  std::vector<Sample> samples;
  for (int i = pick(1, 4); i > 0; --i)
    samples.push_back({.tokens = &source, .first_token = pick(0, 199 - static_cast<int>(seq_len)), .row = pick(0, 99)});
  TokenBatch batch;  // reused, as in the trainer
  std::int64_t valid = 0;
  for (options.cp_rank = 0; options.cp_rank < cp; ++options.cp_rank) {
    BatchMaker(options).make(samples, seq_len, batch);
    RC_ASSERT(batch == naive_batch(samples, seq_len, options));
    valid += batch.num_valid_labels;
  }
  options.context = {};
  options.cp_rank = 0;
  RC_ASSERT(valid == naive_batch(samples, seq_len, options).num_valid_labels);
}

RC_GTEST_PROP(BatchProperty, CpPiecesTogetherAreTheWhole, ()) {
  const int cp = pick(1, 4);
  const std::int64_t seq_len = 2 * cp * pick(1, 40);
  const SyntheticTokens source(1, 300, 5000);
  const std::vector<Sample> samples{{.tokens = &source, .first_token = pick(0, 4000)},
                                    {.tokens = &source, .first_token = pick(0, 4000)}};
  const BatchOptions options{.vocab_size = 300, .attend_across_documents = false, .restart_positions = true};
  const TokenBatch whole = batch_of(samples, seq_len, options);
  TokenBatch joined = whole;
  std::ranges::fill(joined.tokens, -1);
  std::ranges::fill(joined.positions, -1);
  std::ranges::fill(joined.places, -1);
  for (int rank = 0; rank < cp; ++rank) {
    BatchOptions piece_options = options;
    piece_options.context.cp = cp;
    piece_options.cp_rank = rank;
    const TokenBatch piece = batch_of(samples, seq_len, piece_options);
    RC_ASSERT(piece.local_length == seq_len / cp);
    RC_ASSERT(piece.sequence_starts == whole.sequence_starts);
    RC_ASSERT(piece.documents == whole.documents);
    std::size_t from = 0;
    for (std::size_t row = 0; row < 2; ++row)
      for (const Range& range : tokens_over_cp(seq_len, cp, rank))
        for (std::int64_t i = range.begin; i < range.end; ++i, ++from) {
          const std::size_t to = row * static_cast<std::size_t>(seq_len) + static_cast<std::size_t>(i);
          joined.tokens[to] = piece.tokens[from];
          joined.labels[to] = piece.labels[from];
          joined.loss_mask[to] = piece.loss_mask[from];
          joined.positions[to] = piece.positions[from];
          joined.places[to] = piece.places[from];
        }
  }
  RC_ASSERT(joined == whole);
}

}  // namespace
}  // namespace trireme::data
