#include "trireme/kernels/loss/embedding.hpp"

#include "trireme/testing/kernels_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::kernels {
namespace {

test::Subject rows_subject(std::int64_t V, std::int64_t D, std::int64_t T) {
  // Rows that are used often, and some that are never used.
  const at::Tensor ids = at::arange(T).mul(7).remainder(std::max<std::int64_t>(1, V - 1));
  return {text("embedding [", V, ", ", D, "] of ", T),
          [ids](const test::Tensors& in) { return kernels::embedding(in[0], ids.to(in[0].device())); },
          [ids](const test::Tensors& in) { return in[0].index_select(0, ids.to(in[0].device())); },
          {test::normal({V, D}, 1)}};
}

TEST(Embedding, EqualsThePlainFormula) {
  test::expect_all(rows_subject(37, 5, 11));
  test::expect_all(rows_subject(4, 96, 130));
  test::expect_equals_plain(rows_subject(3, 2, 0));
}

TEST(Embedding, SaysWhatIsWrong) {
  EXPECT_THAT(message_of<InternalError>([] { kernels::embedding(at::ones({3, 2}), at::ones({4}, at::kInt)); }),
              testing::HasSubstr("a list of whole numbers (long)"));
}

}  // namespace
}  // namespace trireme::kernels
