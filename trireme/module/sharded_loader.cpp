#include "trireme/module/sharded_loader.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {

ShardedLoader::ShardedLoader(std::shared_ptr<const Dataset> dataset, const Group& group, const ShardOptions& options)
    : dataset_(std::move(dataset)),
      reading_(std::make_shared<std::mutex>()),
      rank_(group.rank()),
      ranks_(group.size()),
      last_(options.last),
      prefetch_(options.prefetch),
      order_{.samples = dataset_->size(),
             .per_step = options.batch_size,
             .shuffle = options.shuffle,
             .seed = options.seed} {
  require<ConfigError>(order_.samples > 0, "shard: the dataset has no samples");
  require<ConfigError>(prefetch_ >= 0, "shard: prefetch ", prefetch_, ": must be a number of batches, or 0 for none");
  require<ConfigError>(options.batch_size >= ranks_, "shard: batches of ", options.batch_size, " samples over ", ranks_,
                       " ranks: must be at least one for each");
  require<ConfigError>(last_ == LastBatch::smaller || options.batch_size % ranks_ == 0, "shard: batches of ",
                       options.batch_size, " samples over ", ranks_,
                       " ranks: LastBatch::drop and pad have parts of equal size, so it must be a multiple of ", ranks_,
                       "\n  fix: batch_size ", (options.batch_size + ranks_ - 1) / ranks_ * ranks_,
                       ", or LastBatch::smaller");
  steps_ = last_ == LastBatch::drop ? order_.samples / order_.per_step : order_.steps();
  require<ConfigError>(steps_ > 0, "shard: ", order_.samples, " samples are less than a batch of ", order_.per_step,
                       ", and LastBatch::drop leaves nothing\n  fix: a smaller batch_size, or LastBatch::smaller");
}

void ShardedLoader::check_step(std::int64_t step) const {
  require<ConfigError>(0 <= step && step < steps_, "shard: step ", step, ": an epoch has the steps 0 to ", steps_ - 1);
}

std::int64_t ShardedLoader::whole_batch(std::int64_t step) const {
  check_step(step);
  return last_ == LastBatch::smaller ? std::min(order_.per_step, order_.samples - step * order_.per_step)
                                     : order_.per_step;
}

std::vector<std::int64_t> ShardedLoader::indices(std::int64_t epoch, std::int64_t step) const {
  require<ConfigError>(epoch >= 0, "shard: epoch ", epoch, ": must be at least 0");
  check_step(step);
  std::vector<std::int64_t> batch = order_.step(epoch, step);
  if (last_ == LastBatch::pad)
    for (std::int64_t i = 0; std::ssize(batch) < order_.per_step;) {  // from the beginning, as often as it takes
      const std::vector<std::int64_t> again = order_.step(epoch, i++ % order_.steps());
      const auto missing = std::min<std::int64_t>(order_.per_step - std::ssize(batch), std::ssize(again));
      batch.insert(batch.end(), again.begin(), again.begin() + missing);
    }
  return part_of_step(batch, rank_, ranks_);
}

Samples ShardedLoader::batch(std::int64_t epoch, std::int64_t step) const {
  const std::vector<std::int64_t> own = indices(epoch, step);
  const std::lock_guard lock(*reading_);
  return dataset_->get(own);
}

ShardedLoader::Iterator ShardedLoader::begin_at(std::int64_t epoch, std::int64_t step) const {
  if (prefetch_ == 0 || step >= steps_) return {*this, epoch, step, nullptr};
  const auto read = [loader = *this, epoch](std::int64_t each) { return loader.batch(epoch, each); };
  return {*this, epoch, step, std::make_shared<ReadAhead>(read, step, steps_, prefetch_)};
}

}  // namespace trireme
