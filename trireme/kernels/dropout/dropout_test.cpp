#include "trireme/kernels/dropout/dropout.hpp"

#include <cmath>

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

using testing::HasSubstr;

constexpr DropoutKey kKey = dropout_key(5, "layers.0.dropout");

/// Reference: the mask by the definition of the mapping, one element at a time.
at::Tensor plain_mask(double p, const DropoutKey& key, const DropoutPlace& place, std::int64_t columns) {
  const at::Tensor rows = place.rows.cpu(), mask = at::empty({rows.size(0), columns}, at::kBool);
  for (std::int64_t t = 0; t < rows.size(0); ++t)
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto i =
          static_cast<std::uint64_t>(rows[t].item<std::int64_t>() * place.row_width + place.first_column + j);
      const auto words =
          philox4x32({static_cast<std::uint32_t>(i / 4), static_cast<std::uint32_t>(i / 4 >> 32),
                      static_cast<std::uint32_t>(key.purpose), static_cast<std::uint32_t>(key.purpose >> 32)},
                     {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)});
      mask[t][j] = words[i % 4] >= p * 0x1p32;
    }
  return mask;
}

/// Every third row from 2^33 on, so that the upper half of the counter is used too.
DropoutPlace some_place(std::int64_t T, std::int64_t row_width, std::int64_t first_column,
                        at::Device device = at::kCPU) {
  return {at::arange(T, at::kLong).mul(3).add(std::int64_t{1} << 33).to(device), row_width, first_column};
}

test::Subject dropout_subject(std::int64_t T, std::int64_t D) {
  return {text("dropout [", T, ", ", D, "]"),
          [=](const test::Tensors& in) { return dropout(in[0], 0.25, kKey, some_place(T, D + 3, 2, in[0].device())); },
          [=](const test::Tensors& in) { return in[0] * plain_mask(0.25, kKey, some_place(T, D + 3, 2), D) / 0.75; },
          {test::normal({T, D}, 1)}};
}

/// Rows of whole vectors, as those of a model are: they have a kernel of their own on a GPU.
test::Subject dropout_and_residual_subject(std::int64_t T, std::int64_t D) {
  const auto place = [=](at::Device device) { return some_place(T, 2 * D, D, device); };
  return {text("dropout and residual [", T, ", ", D, "]"),
          [=](const test::Tensors& in) { return dropout(in[0], 0.25, kKey, place(in[0].device()), in[1]); },
          [=](const test::Tensors& in) { return in[0] * plain_mask(0.25, kKey, place(at::kCPU), D) / 0.75 + in[1]; },
          {test::normal({T, D}, 1), test::normal({T, D}, 2)}};
}

TEST(Dropout, EqualsThePlainFormula) {
  for (const std::int64_t D : {1, 2, 3, 7, 37}) test::expect_all(dropout_subject(5, D));
  test::expect_all(dropout_subject(67, 257));
  test::expect_equals_plain(dropout_subject(0, 7));
}

TEST(Dropout, WithAResidualEqualsThePlainFormula) {
  for (const std::int64_t D : {1, 3, 8, 64, 256, 1000}) test::expect_all(dropout_and_residual_subject(5, D));
  test::expect_equals_plain(dropout_and_residual_subject(0, 8));
}

TEST(Dropout, OfAPartIsThePartOfTheWhole) {
  for (const at::Device device : test::devices()) {
    const at::Tensor x = at::ones({12, 20}, device), rows = at::arange(12, at::kLong).to(device);
    const at::Tensor whole = dropout(x, 0.5, kKey, {rows, 20});
    for (const std::int64_t from : {0, 1, 2, 3, 5})
      for (const std::int64_t count : {1, 2, 3, 4, 9}) {
        const at::Tensor part = dropout(x.narrow(1, from, count).contiguous(), 0.5, kKey, {rows, 20, from});
        EXPECT_TRUE(at::equal(part, whole.narrow(1, from, count))) << from << " " << count;
      }
    const at::Tensor some = at::tensor({7, 3, 11}, at::kLong).to(device);
    EXPECT_TRUE(at::equal(dropout(at::ones({3, 20}, device), 0.5, kKey, {some, 20}), whole.index_select(0, some)));
  }
}

TEST(Dropout, KeepsAsManyAsPromised) {
  const DropoutPlace place{at::arange(400, at::kLong), 1000};
  for (const double p : {0.1, 0.5, 0.9}) {
    const double share = keep_mask(p, kKey, place, 1000).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(share, 1 - p, 5 * std::sqrt(p * (1 - p) / 400'000)) << p;  // five standard deviations
  }
  EXPECT_TRUE(keep_mask(0, kKey, place, 10).all().item<bool>());
}

TEST(Dropout, DependsOnSeedAndPurpose) {
  const DropoutPlace place{at::arange(8, at::kLong), 64};
  const at::Tensor mask = keep_mask(0.5, kKey, place, 64);
  for (const DropoutKey& other : {dropout_key(6, "layers.0.dropout"), dropout_key(5, "layers.1.dropout"),
                                  dropout_key(5 + (1ULL << 32), "layers.0.dropout")}) {
    const double same = (mask == keep_mask(0.5, other, place, 64)).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(same, 0.5, 0.12);
  }
}

TEST(Dropout, MaskIsThatOfDropoutOnEveryDevice) {
  for (const at::Device device : test::devices()) {
    const DropoutPlace place = some_place(9, 50, 3, device);
    const at::Tensor mask = keep_mask(0.3, kKey, place, 41);
    EXPECT_TRUE(at::equal(mask.cpu(), plain_mask(0.3, kKey, place, 41)));
    EXPECT_TRUE(at::equal(dropout(at::ones({9, 41}, device), 0.3, kKey, place) != 0, mask));
  }
}

TEST(Dropout, MappingNeverChanges) {
  const at::Tensor mask = keep_mask(0.5, dropout_key(1, "golden"), {at::zeros({1}, at::kLong), 24}, 24);
  std::string bits;
  for (std::int64_t j = 0; j < 24; ++j) bits += mask[0][j].item<bool>() ? '1' : '0';
  EXPECT_EQ(bits, "100111100011000100101101");
}

TEST(Dropout, OfNothingIsTheInput) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_TRUE(dropout(x, 0, kKey, {at::arange(2, at::kLong), 3}).is_same(x));
}

TEST(Dropout, DoesNotKeepX) { EXPECT_THAT(test::inputs_kept(dropout_subject(4, 8)), testing::ElementsAre(false)); }

TEST(Dropout, ThresholdFits) {
  EXPECT_EQ(dropout_threshold(0), 0U);
  EXPECT_EQ(dropout_threshold(0.25), 1U << 30);
  EXPECT_EQ(dropout_threshold(std::nextafter(1.0, 0.0)), 0xFFFF'FFFFU);
}

TEST(Dropout, SaysWhatIsWrong) {
  const at::Tensor x = at::ones({2, 3}), rows = at::arange(2, at::kLong);
  EXPECT_THAT(message_of<ConfigError>([&] { dropout(x, 1, kKey, {rows, 3}); }), HasSubstr("p = 1: must be at least 0"));
  EXPECT_THAT(message_of<InternalError>([&] { dropout(x, 0.5, kKey, {rows, 3, 1}); }),
              HasSubstr("columns 1 to 3 of rows that are 3 wide"));
  EXPECT_THAT(message_of<InternalError>([&] { dropout(x, 0.5, kKey, {at::arange(3, at::kLong), 3}); }),
              HasSubstr("3 rows on cpu for x of sizes [2, 3]"));
}

}  // namespace
}  // namespace trireme::kernels
