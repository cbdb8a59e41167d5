#include "trireme/parallel/tensor/embedding.hpp"

#include <algorithm>

#include <ATen/ops/_assert_async.h>

#include "trireme/base/error.hpp"
#include "trireme/kernels/loss/embedding.hpp"

namespace trireme {

Range vocabulary_range(std::int64_t entries, const Group& tp) {
  const std::int64_t rows = (entries + tp.size() - 1) / tp.size();
  const std::int64_t begin = std::min(entries, tp.rank() * rows);
  return {begin, std::min(entries, begin + rows)};
}

void check_entries(const char* what, const at::Tensor& numbers_T, std::int64_t entries,
                   std::optional<std::int64_t> except) {
  at::Tensor right_T = numbers_T.ge(0).logical_and_(numbers_T.lt(entries));
  if (except) right_T.logical_or_(numbers_T.eq(*except));
  if (!numbers_T.is_cpu()) return at::_assert_async(right_T.all());
  if (right_T.all().item<bool>()) return;
  const std::int64_t place = right_T.to(at::kByte).argmin().item<std::int64_t>();
  throw DataError(text(what, " ", numbers_T[place].item<std::int64_t>(), " at place ", place,
                       " of the batch is outside the vocabulary of ", entries,
                       " entries\n  fix: the tokenizer and the "
                       "model's vocab_size must belong together"));
}

ParallelVocabulary::ParallelVocabulary(std::int64_t entries, std::int64_t features, Parallel parallel,
                                       const VocabularyTie& tie)
    : parallel_(parallel), entries_(entries) {
  const Placement rows{.cuts = {vocabulary_rows(Axis::tp, 0)}};
  weight_vD = declare("weight",
                      {.shape = {entries, features},
                       .placement = rows,
                       .fill = Fill::embedding,
                       .tie = tie.info,
                       .is_tied_copy = tie.is_copy},
                      parallel);
}

at::Tensor ParallelVocabulary::forward(const at::Tensor& ids_T) {
  check_entries("token", ids_T, entries_);
  const Range own = vocabulary_range(entries_, parallel_.tp);
  at::Tensor mine;
  if (parallel_.tp.size() == 1) {
    mine = kernels::embedding(weight_vD, ids_T);
  } else {
    const at::Tensor others_T = ids_T.lt(own.begin).logical_or_(ids_T.ge(own.end));
    mine = kernels::embedding(weight_vD, (ids_T - own.begin).masked_fill_(others_T, 0))
               .masked_fill(others_T.unsqueeze(1), 0);
  }
  return parallel_.add_up(mine);
}

LearnedPositions::LearnedPositions(std::int64_t positions, std::int64_t features, Parallel parallel) {
  weight_PD = declare("weight",
                      {.shape = {positions, features}, .partial = parallel.partial_between(), .fill = Fill::embedding},
                      parallel);
}

at::Tensor LearnedPositions::forward(const at::Tensor& positions_t) {
  return kernels::embedding(weight_PD, positions_t);
}

}  // namespace trireme
