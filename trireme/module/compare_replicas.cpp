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

std::vector<HeldPart> hashes_of(const ModuleParts& parts, bool with_buffers) {
  std::vector<HeldPart> out;
  for (const KeptTensor& kept : parts.kept)
    for (const ShardPart& part : kept.parts)
      add_hash(part.param->name, kept.tensor.detach().reshape({-1}).narrow(0, part.offset, part.range.size()), out);
  if (with_buffers)
    for (const NamedTensor& buffer : parts.buffers) add_hash(buffer.name + " (buffer)", buffer.value, out);
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

}  // namespace

void compare_replicas(const CheckpointedModule& what, const CompareReplicasOptions& options) {
  const at::NoGradGuard no_grad;
  Group& group = what.group();
  const ModuleParts parts = parts_of(what);
  require<ConfigError>(parts.has_everything, "compare_replicas: every rank of ", group.str(),
                       " keeps another part of the module, so there is nothing to compare",
                       "\n  fix: for data_parallel(), and fully_shard() with Sharding::no_shard");
  const at::Device device = group.only_device().value_or(at::Device(at::kCPU));
  const std::string lines = lines_of(hashes_of(parts, options.buffers));
  if (is_same_on_all(lines, group, device)) return;
  require_same_module(what.base_module(), group, device, "compare_replicas");
  std::vector<std::vector<HeldPart>> ranks;
  for (const std::string& each : agree_on(group, device, {}, lines)) ranks.push_back(held_parts_in(each));
  throw ComparisonFailed(text(
      "compare_replicas: ", options.when, options.when.empty() ? "" : ": ",
      differences_of_replicas(ranks, group.world_ranks()),
      "\n  every rank must hold the same bits: either a rank has changed its copy alone (a step or initial values ",
      "under `if (rank == 0)`, an update with other gradients), or its memory or a kernel is at fault",
      "\n  fix: what only some ranks do to the module; else go on from a checkpoint before this, and if it is the ",
      "same rank again, without its host"));
}

}  // namespace trireme
