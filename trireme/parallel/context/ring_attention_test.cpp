#include "trireme/parallel/context/ring_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/comm/backends/thread_world.hpp"
#include "trireme/parallel/context/ulysses.hpp"
#include "trireme/testing/nn_helpers.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kRingBatch = 2, kRingLength = 24, kRingDim = 8;

struct RingCase {
  int ranks = 2;
  CpSplit order = CpSplit::zigzag;
  bool gathers = false;
  std::int64_t heads = 4, kv_heads = 4, window = 0;
  bool documents = false;
  bool planned = false;  // in pieces, without masks

  std::string str() const {
    return text(ranks, " ranks", order == CpSplit::zigzag ? " zig-zag" : " contiguous", gathers ? " gathered" : "", " ",
                heads, "/", kv_heads, " heads, window ", window, documents ? ", documents" : "",
                planned ? ", planned" : "");
  }
};

/// Documents that begin and end at different places_of in the two samples; some end at the border of a part.
at::Tensor ring_documents() {
  at::Tensor out = at::zeros({kRingBatch, kRingLength}, at::kLong);
  for (const std::int64_t border : {1, 7, 12, 20}) out[0].narrow(0, border, kRingLength - border).add_(1);
  for (const std::int64_t border : {3, 4, 18}) out[1].narrow(0, border, kRingLength - border).add_(1);
  return out;
}

at::Tensor places_of(const std::vector<Range>& ranges) {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(at::arange(range.begin, range.end));
  return at::cat(parts);
}

struct WholeAttention {
  at::Tensor q, k, v, dout, out = {}, dq = {}, dk = {}, dv = {};
};

/// Plain attention over whole samples, by autograd.
WholeAttention whole_attention(const RingCase& c, double scale = 1) {
  WholeAttention w{.q = normal_tensor({kRingBatch, c.heads, kRingLength, kRingDim}, 1, "q") * scale,
                   .k = normal_tensor({kRingBatch, c.kv_heads, kRingLength, kRingDim}, 2, "k") * scale,
                   .v = normal_tensor({kRingBatch, c.kv_heads, kRingLength, kRingDim}, 3, "v"),
                   .dout = normal_tensor({kRingBatch, c.heads, kRingLength, kRingDim}, 4, "dout")};
  for (at::Tensor* x : {&w.q, &w.k, &w.v}) x->set_requires_grad(true);
  const at::Tensor place = at::arange(kRingLength), distance = place.unsqueeze(1) - place.unsqueeze(0);
  at::Tensor sees = distance.ge(0);
  if (c.window > 0) sees = sees.logical_and(distance.lt(c.window));
  if (c.documents)
    sees = sees.logical_and(ring_documents().unsqueeze(2).eq(ring_documents().unsqueeze(1)).unsqueeze(1));
  const std::int64_t repeats = c.heads / c.kv_heads;
  const at::Tensor scores =
      at::matmul(w.q, w.k.repeat_interleave(repeats, 1).transpose(2, 3)) / std::sqrt(kRingDim * 1.0);
  w.out = at::matmul(scores.masked_fill(sees.logical_not(), -std::numeric_limits<double>::infinity()).softmax(-1),
                     w.v.repeat_interleave(repeats, 1));
  w.out.backward(w.dout);
  w.dq = w.q.grad();
  w.dk = w.k.grad();
  w.dv = w.v.grad();
  return w;
}

/// As ring_documents().
std::vector<std::vector<std::int64_t>> ring_document_begins(bool documents) {
  if (!documents) return std::vector<std::vector<std::int64_t>>(kRingBatch, {0});
  return {{0, 1, 7, 12, 20}, {0, 3, 4, 18}};
}

RingSamples samples_of(const RingCase& c, const Group& group) {
  RingSamples samples{.order = c.order,
                      .whole_length = kRingLength,
                      .window = c.window,
                      .documents_bS = c.documents ? ring_documents() : at::Tensor(),
                      .gathers = c.gathers};
  if (c.planned)
    samples.plan = RingPlans(ring_document_begins(c.documents))
                       .plan(c.order, kRingLength, c.ranks, group.rank(), c.window, at::kCPU);
  return samples;
}

void expect_equals_one_rank(const RingCase& c, double scale = 1) {
  SCOPED_TRACE(c.str());
  const WholeAttention w = whole_attention(c, scale);
  run_ranks(c.ranks, [&](Group& group) {
    const at::Tensor mine = places_of(tokens_over_cp(kRingLength, c.ranks, group.rank(), c.order));
    const auto own = [&](const at::Tensor& x) { return x.detach().index_select(2, mine); };
    const at::Tensor q = own(w.q).set_requires_grad(true), k = own(w.k).set_requires_grad(true),
                     v = own(w.v).set_requires_grad(true);
    const at::Tensor out = ring_attention(q, k, v, samples_of(c, group), group);
    EXPECT_LT(relative(out, own(w.out)), 1e-13);
    out.backward(own(w.dout));
    // A softmax with one large score has almost no gradient: what is left is rounding, of the size of the scores.
    const auto error = [&](const at::Tensor& found, const at::Tensor& wanted) {
      return (found - wanted).norm().item<double>() / std::max(wanted.norm().item<double>(), scale > 1 ? 1.0 : 0.0);
    };
    const double bound = 1e-13 * scale * scale;
    EXPECT_LT(error(q.grad(), own(w.dq)), bound);
    EXPECT_LT(error(k.grad(), own(w.dk)), bound);
    EXPECT_LT(error(v.grad(), own(w.dv)), bound);
    const at::NoGradGuard off;
    EXPECT_TRUE(ring_attention(q, k, v, samples_of(c, group), group).equal(out)) << "without gradients";
  });
}

TEST(RingAttention, EqualsOneRank) {
  for (const int ranks : {1, 2, 3, 4})
    for (const auto& [order, gathers] :
         {std::pair(CpSplit::zigzag, false), std::pair(CpSplit::contiguous, false), std::pair(CpSplit::zigzag, true)})
      for (const std::int64_t kv_heads : {4, 2, 1})
        for (const std::int64_t window : {0, 5})
          for (const bool apart : {false, true})
            for (const bool planned : {false, true})
              expect_equals_one_rank({ranks, order, gathers, 4, kv_heads, window, apart, planned});
}

/// Scores of +-1,000: exp overflows unless the largest is subtracted in the merge.
TEST(RingAttention, LargeScoresDoNotOverflow) { expect_equals_one_rank({.ranks = 4}, 30); }

/// The published failure of merging in 16 bits: the error must not grow with the number of ranks.
TEST(RingAttention, SixteenHopsInBfloat16AreAsExactAsOneRank) {
  constexpr std::int64_t length = 128;
  constexpr int ranks = 16;
  const auto random = [](const char* name) {
    return normal_tensor({1, 2, length, kRingDim}, 7, name).to(at::kBFloat16);
  };
  const at::Tensor q = random("q"), k = random("k"), v = random("v");
  const auto attention = [&](at::ScalarType dtype) {
    return at::scaled_dot_product_attention(q.to(dtype), k.to(dtype), v.to(dtype), {}, 0.0, true).to(at::kDouble);
  };
  const at::Tensor exact = attention(at::kDouble);
  const double error_of_one = (attention(at::kBFloat16) - exact).norm().item<double>();
  at::Tensor joined = at::zeros_like(exact);
  std::mutex lock;
  run_ranks(ranks, [&](Group& group) {
    const at::Tensor mine = places_of(tokens_over_cp(length, ranks, group.rank(), CpSplit::zigzag));
    const auto own = [&](const at::Tensor& x) { return x.index_select(2, mine); };
    const at::Tensor out = ring_attention(own(q), own(k), own(v), {.whole_length = length}, group);
    EXPECT_EQ(out.scalar_type(), at::kBFloat16);
    const std::scoped_lock one(lock);
    joined.index_copy_(2, mine, out.to(at::kDouble));
  });
  EXPECT_LE((joined - exact).norm().item<double>(), error_of_one);
}

/// n - 1 messages of K and V in forward; in backward the same and n - 1 of their gradients.
TEST(RingAttention, BytesOnTheWire) {
  for (const bool gathers : {false, true}) {
    const RingCase c{.ranks = 4, .gathers = gathers, .kv_heads = 2};
    run_ranks(c.ranks, [&](Group& group) {
      const std::int64_t length = kRingLength / c.ranks;
      const auto part = [&](std::int64_t heads) {
        return at::rand({kRingBatch, heads, length, kRingDim}, at::kDouble).set_requires_grad(true);
      };
      const at::Tensor q = part(c.heads), k = part(c.kv_heads), v = part(c.kv_heads);
      const std::int64_t kv_bytes = 2 * k.numel() * 8, rounds = c.ranks - 1;
      const at::Tensor out = ring_attention(q, k, v, samples_of(c, group), group);
      EXPECT_EQ(group.traffic().bytes, rounds * kv_bytes);
      out.sum().backward();
      EXPECT_EQ(group.traffic().bytes, 3 * rounds * kv_bytes);
    });
  }
}

TEST(Ulysses, HeadsPerRank) {
  EXPECT_EQ(heads_per_rank({8, 8}, 4), (HeadCounts{2, 2}));
  EXPECT_EQ(heads_per_rank({8, 4}, 4), (HeadCounts{2, 1}));
  EXPECT_EQ(heads_per_rank({8, 2}, 4), (HeadCounts{2, 1}));
  EXPECT_EQ(heads_per_rank({8, 1}, 4), (HeadCounts{2, 1}));
  EXPECT_EQ(heads_per_rank({6, 3}, 2), (HeadCounts{3, 3})) << "the KV head in the middle is used by both ranks";
  EXPECT_THROW(heads_per_rank({6, 3}, 4), ConfigError);
}

/// The heads of a rank are those that its queries need, and everything returns to its place.
TEST(Ulysses, ExchangesHeads) {
  for (const HeadCounts& heads : {HeadCounts{4, 4}, {4, 2}, {4, 1}, {6, 3}, {12, 3}})
    for (const int ranks : {1, 2, 4}) {
      if (heads.queries % ranks != 0) continue;
      const std::int64_t n = heads.queries + 2 * heads.keys, s = 3;
      const at::Tensor all = normal_tensor({kRingBatch, ranks * s, n, 2}, 5, "heads");
      run_ranks(ranks, [&](Group& group) {
        const at::Tensor own = all.narrow(1, group.rank() * s, s).clone().set_requires_grad(true);
        const at::Tensor got = exchange_tokens_for_heads(own, heads, group);
        const HeadCounts each = heads_per_rank(heads, ranks);
        ASSERT_EQ(got.size(2), each.queries + 2 * each.keys);
        for (std::int64_t i = 0; i < each.queries; ++i) {
          const std::int64_t query = group.rank() * each.queries + i, key = query / (heads.queries / heads.keys),
                             here = i / (each.queries / each.keys);
          EXPECT_TRUE(got.select(2, i).equal(all.select(2, query)));
          EXPECT_TRUE(got.select(2, each.queries + here).equal(all.select(2, heads.queries + key)));
          EXPECT_TRUE(
              got.select(2, each.queries + each.keys + here).equal(all.select(2, heads.queries + heads.keys + key)));
        }
        const at::Tensor back = exchange_heads_for_tokens(got.narrow(2, 0, each.queries), group);
        EXPECT_TRUE(back.equal(own.narrow(2, 0, heads.queries)));
        // One all-to-all of q, k and v, and one of the results: 1/n of everything stays here.
        const auto sent = [&](const at::Tensor& x) { return x.numel() * 8 / ranks * (ranks - 1); };
        EXPECT_EQ(group.traffic().bytes, sent(got) + sent(back));
        back.sum().backward();
        EXPECT_EQ(group.traffic().bytes, 2 * (sent(got) + sent(back)));
        EXPECT_TRUE(own.grad().narrow(2, 0, heads.queries).eq(1).all().item<bool>());
      });
    }
}

}  // namespace
}  // namespace trireme
