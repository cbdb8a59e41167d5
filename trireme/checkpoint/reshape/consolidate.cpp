#include "trireme/checkpoint/reshape/consolidate.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/files/new_folder.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::checkpoint {
namespace {

// Slices are read whole: far larger than one, so that few are read twice.
constexpr std::uint64_t kConsolidatedBlock = std::uint64_t{256} << 20;

/// A tensor of the checkpoint, and its name in the file.
struct WholeTensor {
  const StoredTensor* stored;
  std::string name;
};

bool is_weight(const Manifest& manifest, const StoredTensor& tensor) {
  if (tensor.kind == kModel) return find(manifest, tensor.name, kWeight) == nullptr;  // else it is there twice
  return tensor.kind == kWeight || tensor.kind == kBuffer;
}
bool is_state_of_optimizer(const StoredTensor& tensor) {
  const auto is = [&](const char* kind) { return tensor.kind == kind; };
  return !is(kModel) && !is(kWeight) && !is(kBuffer) && !is(kRandom) && !is(kArchive);
}

/// The largest elements first: then each tensor begins at a multiple of the size of its elements.
void sort_for_files(const Reader& source, std::vector<WholeTensor>& tensors) {
  std::ranges::stable_sort(tensors, std::ranges::greater(), [](const WholeTensor& t) { return bits(t.stored->dtype); });
  std::set<std::string> names;
  for (const WholeTensor& tensor : tensors)
    require<CheckpointError>(names.insert(tensor.name).second, source.shown(), ": has two tensors with the name ",
                             files::shown_name(tensor.name), ", and a safetensors file holds one",
                             "\n  fix: a parameter and a buffer with different names");
}

class Consolidation {
 public:
  Consolidation(const Reader& source, const ConsolidateOptions& options) : source_(source), options_(options) {}

  std::uint64_t of = 0;  // bytes of all that will be written

  Consolidated::Written write(const std::vector<WholeTensor>& tensors, const std::filesystem::path& folder) {
    std::vector<files::SafetensorsTensor> list;
    for (const WholeTensor& tensor : tensors) list.push_back({tensor.name, tensor.stored->dtype, tensor.stored->shape});
    std::optional<files::SafetensorsFolderWriter> output;
    try {
      output.emplace(folder, list, options_.max_shard_bytes);
    } catch (const InternalError& e) {  // the names are not ours
      throw CheckpointError(text(source_.shown(), ": cannot be written as safetensors: ", e.what(),
                                 "\n  fix: other names of parameters and buffers"));
    }
    files::SafetensorsFolderWriter& writer = *output;
    Consolidated::Written out{.tensors = tensors.size()};
    for (const WholeTensor& tensor : tensors) out.bytes += copy(tensor, writer);
    writer.publish();
    return out;
  }

 private:
  std::uint64_t copy(const WholeTensor& tensor, files::SafetensorsFolderWriter& writer) {
    const StoredTensor& stored = *tensor.stored;
    Box box = whole_box(stored.shape);
    const std::uint64_t all = bytes_of(stored);
    if (all == 0) return 0;
    const std::int64_t rows = box.empty() ? 1 : box[0].end;
    const std::uint64_t row = all / static_cast<std::uint64_t>(rows);
    const auto each = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kConsolidatedBlock / row));
    for (std::int64_t begin = 0; begin < rows; begin += each) {
      if (!box.empty()) box[0] = {begin, std::min(begin + each, rows)};
      block_.resize(bytes_of_box(box, stored.dtype));
      source_.read(stored, box, block_);
      writer.append(tensor.name, block_);
      done_ += block_.size();
      if (options_.progress) options_.progress(done_, of);
    }
    return all;
  }

  const Reader& source_;
  const ConsolidateOptions& options_;
  std::uint64_t done_ = 0;
  std::vector<std::byte> block_;
};

}  // namespace

Consolidated consolidate(const Reader& source, const std::filesystem::path& folder, const ConsolidateOptions& options) {
  const Manifest& manifest = source.manifest();
  std::vector<WholeTensor> weights, states;
  bool has_archive = false;
  for (const StoredTensor& tensor : manifest.tensors) {
    has_archive = has_archive || tensor.kind == kArchive;
    if (is_weight(manifest, tensor))
      weights.push_back({&tensor, tensor.name});
    else if (options.optimizer && is_state_of_optimizer(tensor))
      states.push_back({&tensor, tensor.name + "." + tensor.kind});
  }
  require<CheckpointError>(!weights.empty(), source.shown(), ": has no weights\n  fix: name another checkpoint");
  require<CheckpointError>(!options.optimizer || !states.empty(), source.shown(),
                           has_archive ? ": the states of its optimizer are in torch's own format, without names"
                                       : ": has no states of an optimizer",
                           "\n  fix: leave out --optimizer");
  sort_for_files(source, weights);
  sort_for_files(source, states);
  Consolidation work(source, options);
  for (const auto& list : {weights, states})
    for (const WholeTensor& tensor : list) work.of += bytes_of(*tensor.stored);
  if (!options.optimizer) return {.weights = work.write(weights, folder)};
  files::NewFolder made(folder);
  Consolidated out;
  out.weights = work.write(weights, made.path());
  out.states = work.write(states, made.path() / "optimizer");
  made.publish();
  return out;
}

}  // namespace trireme::checkpoint
