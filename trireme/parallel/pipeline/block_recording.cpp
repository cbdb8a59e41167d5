#include "trireme/parallel/pipeline/block_recording.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/base/fnv.hpp"

namespace trireme {
namespace {

std::vector<std::string> split_lines(const std::string& joined) {
  std::vector<std::string> lines;
  std::istringstream in(joined);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::vector<std::string> Recording::lines() const {
  std::vector<int> call_of_node;
  int calls = 0;
  for (const RecordedNode& node : nodes) call_of_node.push_back(node.block == nullptr ? 0 : ++calls);
  const auto str = [&](const RecordedValue& value) {
    const RecordedNode& node = nodes[static_cast<std::size_t>(value.node)];
    if (node.block == nullptr) return text("the batch's '", node.key, "'");
    return text("'", node.block->options().module_output_keys[static_cast<std::size_t>(value.output)], "' of call ",
                call_of_node[static_cast<std::size_t>(value.node)]);
  };
  std::vector<std::string> out;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const RecordedNode& node = nodes[i];
    if (node.block == nullptr) {
      out.push_back(text("the batch has '", node.key, "'"));
      continue;
    }
    const BlockOptions& options = node.block->options();
    std::string line =
        text("call ", call_of_node[i], " is ", node.block->str(), " on pipeline rank ", node.block->pp_rank(), " (");
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      line += text(k == 0 ? "" : ", ", options.module_input_keys[k], " = ", str(node.inputs[k]));
    out.push_back(line + ") -> " + in_braces(options.module_output_keys));
  }
  out.push_back(text("the loss is ", str(loss)));
  return out;
}

BlockRecorder::BlockRecorder(PipelineP2P& p2p) : p2p_(p2p), number_(++p2p.recordings_) {
  require(p2p.recorder_ == nullptr, "a model is recorded while another one is");
  p2p.recorder_ = this;
}

BlockRecorder::~BlockRecorder() { p2p_.recorder_ = nullptr; }

TensorOrPointer BlockRecorder::value(int node, int output, int pp_rank) const {
  TensorOrPointer out(TensorPointer{.group_rank = pp_rank});
  out.recorded_ = {.recording = number_, .node = node, .output = output};
  return out;
}

TensorDict BlockRecorder::record_batch(const TensorDict& batch) {
  TensorDict::Entries entries;
  for (const auto& [key, seen] : batch) {
    const int rank = seen.is_tensor() ? p2p_.rank() : seen.pointer().group_rank;
    entries.emplace(key, value(static_cast<int>(recording_.nodes.size()), 0, rank));
    recording_.nodes.push_back({.block = nullptr, .key = key});
  }
  return {std::move(entries), "the batch"};
}

TensorDict BlockRecorder::record_call(const std::shared_ptr<PipelineBlockImpl>& block, const TensorDict& inputs) {
  const BlockOptions& options = block->options();
  const int number = static_cast<int>(recording_.nodes.size());
  RecordedNode node{.block = block, .key = {}};
  for (const std::string& key : options.module_input_keys) {
    const TensorOrPointer input = inputs[key];
    require<ConfigError>(input.recorded_ && input.recorded_->recording == number_, block->str(), ", input '", key,
                         "': neither an entry of the batch nor the result of a block in this forward",
                         "\n  fix: make it an entry of the batch");
    node.inputs.push_back({input.recorded_->node, input.recorded_->output});
  }
  recording_.nodes.push_back(std::move(node));
  TensorDict::Entries results;
  for (std::size_t i = 0; i < options.module_output_keys.size(); ++i)
    results.emplace(options.module_output_keys[i], value(number, static_cast<int>(i), block->pp_rank()));
  return {std::move(results), text("the result of ", block->str())};
}

Recording BlockRecorder::finish(const TensorOrPointer& loss) && {
  require<ConfigError>(loss.recorded_ && loss.recorded_->recording == number_ &&
                           recording_.nodes[static_cast<std::size_t>(loss.recorded_->node)].block != nullptr,
                       "the forward returned a loss that no block has computed");
  recording_.loss = {loss.recorded_->node, loss.recorded_->output};
  return std::move(recording_);
}

void check_same_lines(const std::vector<std::string>& lines, PipelineP2P& p2p) {
  std::string joined;
  for (const std::string& line : lines) joined += line + "\n";
  const auto hashes = p2p.gather(std::vector{static_cast<std::int64_t>(fnv1a(joined))});
  const auto other = std::ranges::find_if(hashes, [&](const auto& hash) { return hash != hashes[0]; });
  if (other == hashes.end()) return;
  const std::vector<std::string> all = p2p.gather(joined);
  const auto rank = static_cast<std::size_t>(other - hashes.begin());
  const std::vector<std::string> a = split_lines(all[0]), b = split_lines(all[rank]);
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  const auto line = [&](const std::vector<std::string>& of) { return at < of.size() ? of[at] : "nothing follows"; };
  throw CommError(CommError::Kind::hang_or_mismatch,
                  text("pipeline ranks 0 and ", rank, " do not run the same model\n  --> on rank 0 ", line(a),
                       "\n  --> on rank ", rank, " ", line(b),
                       "\n  fix: the forward above the blocks must not depend on the rank or on values of tensors"));
}

}  // namespace trireme
