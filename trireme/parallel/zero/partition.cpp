#include "trireme/parallel/zero/partition.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.hpp"
#include "trireme/parallel/zero/shard_groups.hpp"

namespace trireme {

Partition::Partition(std::vector<Param> params, UnitPlan units, const ParamMesh& mesh, const ZeroOptions& options,
                     const NeedsWhole& needs_whole)
    : options_(options), units_(std::move(units)), mesh_(mesh), params_(std::move(params)) {
  std::ranges::reverse(params_);
  check();

  if (!units_.units.empty()) {
    std::map<std::string, std::size_t> unit_of;
    for (std::size_t u = 0; u < units_.units.size(); ++u)
      for (const std::string& name : units_.units[u].params) unit_of[name] = u;
    for (const Param& param : params_) {
      const auto found = unit_of.find(param.name);
      require<ConfigError>(found != unit_of.end(), param.name, " is in no unit of the model: nobody would bring it\n",
                           "  fix: name it in one of the UnitPlan's units");
      unit_of_.push_back(found->second);
    }
  }
  make_rank_groups();

  std::vector<FlatItem> items;
  for (const Param& param : params_)
    items.push_back({.numel = param.value.numel(),
                     .alone = param.spec.fill == Fill::embedding || param.spec.tie.has_value(),
                     .whole = needs_whole && needs_whole(param)});
  layout_ = flat_layout(items, make_groups(items), shards_->size());
  bucket_of_.resize(params_.size());
  offset_of_.resize(params_.size());
  buckets_of_unit_.resize(units_.units.size());
  for (std::size_t b = 0; b < num_buckets(); ++b) {
    std::set<std::size_t> touched;
    for (const FlatSlot& slot : bucket(b).slots) {
      bucket_of_[slot.item] = b;
      offset_of_[slot.item] = slot.offset;
      if (!unit_of_.empty()) touched.insert(unit_of_[slot.item]);
    }
    for (const std::size_t unit : touched) buckets_of_unit_[unit].push_back(b);
  }
}

void Partition::check() const {
  require<ConfigError>(!params_.empty(), "the model has no parameter to train");
  require<ConfigError>(options_.stage >= 0 && options_.stage <= 3, "parallelism.zero = ", options_.stage,
                       ": must be 0, 1, 2 or 3");
  require<ConfigError>(options_.stage < 3 || !units_.units.empty(),
                       "parallelism.zero = 3: the model does not say which units its parameters come and go in");
  const Param& first = params_[0];
  for (const Param& param : params_)
    require<ConfigError>(
        param.value.scalar_type() == first.value.scalar_type() && param.value.device() == first.value.device(),
        param.name, " is ", param.value.scalar_type(), " on ", param.value.device(), ", ", first.name, " is ",
        first.value.scalar_type(), " on ", first.value.device(),
        ": flat buckets hold parameters of one dtype on one device\n  fix: model.to(dtype), model.to(device)");
  require<ConfigError>(options_.forward_only || (options_.accumulate == at::kDouble) == (dtype() == at::kDouble),
                       first.name, " is ", dtype(), ", its gradient is to be accumulated in ", options_.accumulate);
}

void Partition::make_rank_groups() {
  Group& same = mesh_.sum_group(params_[0].spec);
  for (const Param& param : params_)
    require(&mesh_.sum_group(param.spec) == &same, param.name, " and ", params_[0].name,
            " are in one partition and summed over other groups");
  const int replicas = options_.stage == 0 ? same.size() : options_.replicate;
  require<ConfigError>(
      replicas >= 1 && same.size() % replicas == 0, "parallelism.replicate = ", options_.replicate, " does not divide ",
      params_[0].spec.placement.view == View::dense ? "dp x cp = " : "the experts' edp = ", same.size());
  const ShardGroups groups = shard_groups(same, replicas, mesh_.mesh());
  shards_ = groups.shards;
  replicas_ = groups.replicas;
}

FlatGroups Partition::make_groups(const std::vector<FlatItem>& items) {
  const auto bytes = static_cast<double>(c10::elementSize(options_.accumulate));
  const auto bucket_elements = std::max<std::int64_t>(1, static_cast<std::int64_t>(options_.bucket_mb * 1e6 / bytes));
  if (options_.stage < 3) return groups_by_size(items, bucket_elements);

  FlatGroups groups;
  std::map<std::size_t, std::size_t> group_of_unit;
  std::vector<std::size_t> kept;
  std::vector<FlatItem> kept_items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].numel <= options_.persistence_threshold) {
      kept.push_back(i);
      kept_items.push_back(items[i]);
      continue;
    }
    if (params_[i].spec.tie) {  // its shards must be the same on all ranks that share it
      groups.push_back({i});
      continue;
    }
    const auto [at, is_new] = group_of_unit.try_emplace(unit_of_[i], groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(i);
  }
  freed_buckets_ = groups.size();
  for (std::vector<std::size_t>& group : groups_by_size(kept_items, bucket_elements)) {
    for (std::size_t& item : group) item = kept[item];
    groups.push_back(std::move(group));
  }
  return groups;
}

std::int64_t Partition::num_elements() const {
  std::int64_t n = 0;
  for (const Param& param : params_) n += param.value.numel();
  return n;
}

}  // namespace trireme
