#include "trireme/module/compare_replicas.hpp"

#include <cstring>
#include <span>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/held_parts.hpp"
#include "trireme/files/xxh3.hpp"
#include "trireme/module/agreed_failure.hpp"
#include "trireme/module/module_parts.hpp"

namespace trireme {
namespace {

std::span<const std::byte> bytes_of_host(const at::Tensor& host) {
  return {static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()};
}

void add_hash(const std::string& name, const at::Tensor& value, std::vector<HeldPart>& out) {
  const at::Tensor host = value.detach().contiguous().cpu();
  out.push_back({.what = name, .hash = files::str(files::xxh3(bytes_of_host(host)))});
}

/// The ranks of a group keep the same, or should.
struct Replicas {
  Group* group;
  std::vector<HeldPart> hashes;
};

/// In the same order on all ranks.
std::vector<Replicas> replicas_in(const CheckpointedModule& what, const ModuleParts& parts, bool with_buffers) {
  std::vector<Replicas> out;
  const auto hashes_over = [&out](Group& group) -> std::vector<HeldPart>& {
    for (Replicas& known : out)
      if (known.group == &group) return known.hashes;
    return out.emplace_back(&group).hashes;
  };
  bool any = false;
  for (const KeptTensor& kept : parts.kept) {
    if (kept.replicas == nullptr) continue;
    any = true;
    for (const ShardPart& part : kept.parts) {
      const bool whole = part.range.size() == part.param->value.numel();
      add_hash(whole ? part.param->name : text(part.param->name, " [", part.range.begin, ":", part.range.end, "]"),
               kept.tensor.detach().reshape({-1}).narrow(0, part.offset, part.range.size()),
               hashes_over(*kept.replicas));
    }
  }
  require<ConfigError>(any || parts.kept.empty(), "compare_replicas: every rank of ", what.group().str(),
                       " keeps another part of the module, so there is nothing to compare",
                       "\n  fix: for data_parallel(), and fully_shard() with Sharding::no_shard or `replicate`");
  Group& same_buffers = what.mesh() ? what.mesh()->mesh().token_group() : what.group();
  if (with_buffers)
    for (const NamedTensor& buffer : parts.buffers)
      add_hash(buffer.name + " (buffer)", buffer.value, hashes_over(same_buffers));
  return out;
}

/// Whether all ranks have the same text, by its hash.
bool is_same_on_all(const std::string& own, Group& group, at::Device device) {
  const files::Xxh3 hash = files::xxh3(std::as_bytes(std::span(own)));
  const at::Tensor words = at::empty({2}, at::kLong);
  std::memcpy(words.mutable_data_ptr(), &hash, sizeof hash);
  static_assert(sizeof hash == 2 * sizeof(std::int64_t));
  const at::Tensor all = group.all_gather(words.to(device)).wait().cpu().view({group.size(), 2});
  return all.eq(all[0]).all().item<bool>();
}

/// What differs; empty: nothing. Collective over the group.
std::string differences_within(const Replicas& replicas, const CheckpointedModule& what) {
  Group& group = *replicas.group;
  const at::Device device = group.only_device().value_or(at::Device(at::kCPU));
  const std::string lines = lines_of(replicas.hashes);
  if (group.size() == 1 || is_same_on_all(lines, group, device)) return "";
  require_same_module(what.base_module(), group, device, "compare_replicas");
  std::vector<std::vector<HeldPart>> ranks;
  for (const std::string& each : agree_on(group, device, {}, lines)) ranks.push_back(held_parts_in(each));
  return differences_of_replicas(ranks, group.world_ranks());
}

}  // namespace

void compare_replicas(const CheckpointedModule& what, const CompareReplicasOptions& options) {
  const at::NoGradGuard no_grad;
  const ModuleParts parts = parts_of(what, /*cut_needs_mesh=*/false);
  std::vector<Replicas> all_replicas;
  // A stage of a pipeline may have something to compare when another one has not.
  const Failure failure = failure_of([&] { all_replicas = replicas_in(what, parts, options.buffers); });
  agree_on(what.group(), parts.device, failure);
  std::string differences;
  for (const Replicas& replicas : all_replicas) {
    const std::string found = differences_within(replicas, what);
    if (!found.empty()) differences += (differences.empty() ? "" : "\n") + found;
  }
  if (what.mesh()) {  // those of other groups, too
    std::string all;
    for (const std::string& each : agree_on(what.group(), parts.device, {}, differences))
      if (!each.empty() && all.find(each) == std::string::npos) all += (all.empty() ? "" : "\n") + each;
    differences = all;
  }
  if (differences.empty()) return;
  throw ComparisonFailed(text(
      "compare_replicas: ", options.when, options.when.empty() ? "" : ": ", differences,
      "\n  every rank must hold the same bits: either a rank has changed its copy alone (a step or initial values ",
      "under `if (rank == 0)`, an update with other gradients), or its memory or a kernel is at fault",
      "\n  fix: what only some ranks do to the module; else go on from a checkpoint before this, and if it is the ",
      "same rank again, without its host"));
}

}  // namespace trireme
