#include "trireme/parallel/zero/zero.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"
#include "trireme/nn/init_scope.hpp"

namespace trireme {
namespace {

Partition::NeedsWhole needs_whole_of(const std::shared_ptr<const Optimizer>& optimizer) {
  return [optimizer](const Param& param) { return optimizer->needs_whole(param.name, param.value.sizes().vec()); };
}

/// The parameters of a chunk, grouped by the group that sums their gradients.
std::vector<std::vector<Param>> by_sum_group(std::vector<Param> params, const ParamMesh& mesh) {
  std::vector<std::pair<Group*, std::vector<Param>>> groups;
  for (Param& param : params) {
    Group* const group = &mesh.sum_group(param.spec);
    auto found = std::ranges::find(groups, group, [](const auto& entry) { return entry.first; });
    if (found == groups.end()) found = groups.insert(groups.end(), {group, {}});
    found->second.push_back(std::move(param));
  }
  std::vector<std::vector<Param>> out;
  for (auto& [group, members] : groups) out.push_back(std::move(members));
  return out;
}

/// A parameter without memory gets its values here or not at all.
void require_values(const Param& param, const ParamValues& values) {
  require<ConfigError>(!param.value.is_meta() || (values && param.declared), param.name,
                       " is on the device meta and has no values\n  fix: ",
                       param.declared ? "give Zero the initial values, e.g. random_values(mesh, {.seed = 1})"
                                      : "make the module that registers it on a real device (only Layers are filled)");
}

/// Buckets and their slots are in backward order.
void for_each_of_part(const ZeroPart& part, const std::function<void(const Param& param)>& f) {
  for (std::size_t b = part.partition.num_buckets(); b-- > 0;) {
    const FlatBucket& bucket = part.partition.bucket(b);
    for (std::size_t s = bucket.slots.size(); s-- > 0;) f(part.partition.params()[bucket.slots[s].item]);
  }
}

/// Of a frozen parameter: with units, a part holds only what is in one of them.
bool can_be_in_a_part(const Param& param, const UnitPlan& plan) {
  const bool is_in_a_unit = std::ranges::any_of(
      plan.units, [&](const UnitParams& unit) { return std::ranges::count(unit.params, param.name) > 0; });
  return !param.spec.set_by_layer && param.value.is_floating_point() && (plan.units.empty() || is_in_a_unit);
}

bool has_trained(const std::vector<ParamSection>& sections) {
  return std::ranges::any_of(sections, [](const ParamSection& section) {
    return std::ranges::any_of(section.params, [](const ModelParam& param) { return param.is_trained; });
  });
}

constexpr int kFrozenSections = 1 << 20;  // after those of all chunks

std::vector<ParamSection> own_sections(const Zero& zero, const Mesh& mesh) {
  std::vector<ParamSection> sections;
  const int stage = mesh.coord(Axis::pp);
  const auto add = [&](ParamSection& section, const Param& param, bool is_trained) {
    if (!param.spec.is_tied_copy)
      section.params.push_back({param.name, param.spec.shape, param.value.scalar_type(), is_trained});
  };
  for (std::size_t c = 0; c < zero.num_chunks(); ++c) {
    sections.push_back({zero.chunk(c).number(), stage, {}});
    for_each_trained(zero.chunk(c), [&](const Param& param) { add(sections.back(), param, true); });
  }
  sections.push_back({kFrozenSections + stage, stage, {}});
  for (const ZeroPart* part : zero.parts())
    if (!part->is_trained) for_each_of_part(*part, [&](const Param& param) { add(sections.back(), param, false); });
  for (const Param& param : zero.frozen()) add(sections.back(), param, false);
  std::erase_if(sections, [](const ParamSection& section) { return section.params.empty(); });
  return sections;
}

}  // namespace

void for_each_trained(const ZeroChunk& chunk, const std::function<void(const Param& param)>& f) {
  for (const auto& part : chunk.parts())
    if (part->is_trained) for_each_of_part(*part, f);
}

ZeroPart::ZeroPart(std::vector<Param> own, UnitPlan units, const ParamMesh& mesh, const ZeroOptions& options,
                   const PartUpdate& update, bool trained)
    : is_trained(trained),
      lr_factor(update.lr_factor),
      partition(std::move(own), std::move(units), mesh, options, needs_whole_of(update.optimizer)),
      params(partition),
      gradients(partition),
      norm(partition),
      optimizer(params, gradients, update.optimizer, update.options) {
  if (options.stage < 3 || !trained) return;
  gradients.on_bucket_complete([this](std::size_t b) { params.backward_done(b); });
  gradients.on_bucket_read([this](std::size_t b) { params.gather(b); });
}

void ZeroPart::fill(const ParamValues& values) {
  const at::NoGradGuard no_grad;
  for (std::size_t b = partition.num_buckets(); b-- > 0;) {
    for (const FlatPiece& piece : partition.own_pieces(b)) {
      const Param& param = partition.params()[piece.item];
      if (!param.declared) continue;
      for_each_block(param, piece.of_item, values, [&](Range block, const at::Tensor& numbers) {
        optimizer.set_weights(b, piece.offset + block.begin - piece.of_item.begin, numbers);
      });
    }
    params.gather_kept(b);
  }
}

namespace {

/// Calls f(reducer) for the parts that have gradients.
template <class F>
void for_each_reducer(const std::vector<std::unique_ptr<ZeroPart>>& parts, F f) {
  for (const auto& part : parts)
    if (part->is_trained) f(part->gradients);
}

}  // namespace

void ZeroChunk::begin_microbatch(bool last) {
  for (const auto& part : parts_) part->params.begin_backward(last);
  for_each_reducer(parts_, [last](GradReducer& gradients) { gradients.begin_microbatch(last); });
}

void ZeroChunk::end_microbatch() {
  for (const auto& part : parts_) {
    part->params.free_all();
    if (part->is_trained) part->gradients.end_microbatch();
  }
}

void ZeroChunk::hold_back() {
  for_each_reducer(parts_, [](GradReducer& gradients) { gradients.hold_back(); });
}

void ZeroChunk::replayed() {
  for_each_reducer(parts_, [](GradReducer& gradients) { gradients.replayed(); });
}

void ZeroChunk::begin_deferral(int microbatch) {
  for (const auto& part : parts_) {
    part->params.begin_backward(/*last=*/false);  // the weight gradients follow
    if (part->is_trained) part->gradients.begin_deferral(microbatch);
  }
}

void ZeroChunk::end_deferral() {
  for (const auto& part : parts_) {
    if (part->is_trained) part->gradients.end_deferral();
    part->params.free_all();  // deferred work that needs weights gathers them again
  }
}

void ZeroChunk::run_deferred(int microbatch) {
  for_each_reducer(parts_, [microbatch](GradReducer& gradients) { gradients.run_deferred(microbatch); });
}

void ZeroChunk::before_forward(std::size_t unit) {
  for (const auto& part : parts_) part->params.before_forward(unit);
}

void ZeroChunk::after_forward(std::size_t unit) {
  for (const auto& part : parts_) part->params.after_forward(unit);
}

void ZeroChunk::before_backward(std::size_t unit) {
  for (const auto& part : parts_) part->params.before_backward(unit);
}

Zero::Zero(std::vector<ModelChunk> chunks, Mesh& mesh, const ZeroOptions& options, const UpdateOptions& update,
           const ParamValues& values)
    : mesh_(mesh) {
  for (const ParameterGroup& group : update.groups) {
    UpdateOptions of_group = update;
    if (group.optimizer) of_group.optimizer = *group.optimizer;
    updates_.push_back({update.make(of_group.optimizer), of_group, group.lr_factor});
    names_.push_back(name_patterns(group.names));
  }
  updates_.push_back({update.make(update.optimizer), update, 1});
  ZeroOptions without_gradients = options;
  without_gradients.forward_only = true;
  std::vector<ZeroPart*> frozen_parts;
  for (ModelChunk& chunk : chunks) {
    for (const Param& param : chunk.params) require_values(param, values);
    std::vector<std::unique_ptr<ZeroPart>> parts;
    const auto add_parts = [&](std::vector<Param> params, const PartUpdate& how, bool is_trained) {
      for (std::vector<Param>& alike : by_sum_group(std::move(params), mesh)) {
        parts.push_back(std::make_unique<ZeroPart>(std::move(alike), chunk.units, mesh,
                                                   is_trained ? options : without_gradients, how, is_trained));
        (is_trained ? parts_ : frozen_parts).push_back(parts.back().get());
      }
    };
    std::vector<std::vector<Param>> trained(updates_.size());
    std::map<std::pair<at::ScalarType, std::string>, std::vector<Param>> frozen;  // by dtype and device
    for (Param& param : chunk.params) {
      if (param.value.requires_grad())
        trained[group_of(param.name)].push_back(std::move(param));
      else if (can_be_in_a_part(param, chunk.units))
        frozen[{param.value.scalar_type(), param.value.device().str()}].push_back(std::move(param));
      else
        frozen_.push_back(std::move(param));
    }
    // All others first: theirs is the part that a model without groups has.
    for (std::size_t i = trained.size(); i-- > 0;) add_parts(std::move(trained[i]), updates_[i], true);
    for (auto& [kind, params] : frozen) add_parts(std::move(params), updates_.back(), false);
    chunks_.push_back(std::make_unique<ZeroChunk>(std::move(parts), chunk.number));
  }
  num_trained_ = parts_.size();
  parts_.insert(parts_.end(), frozen_parts.begin(), frozen_parts.end());
  std::vector<GradReducer*> reducers;
  for (ZeroPart* part : trained()) reducers.push_back(&part->gradients);
  tied_ = TiedSums(reducers, mesh);
  sections_ = all_sections(own_sections(*this, mesh), mesh);
  // Without peers (a dry run of one stage) nothing is known of the other stages.
  const bool knows_all = !sections_.empty();
  require<ConfigError>((!knows_all || has_trained(sections_)) && !parts_.empty(),
                       "the model has no parameter to train");
  for (const Param& param : frozen_)
    if (param.value.is_meta())
      set_memory(param.value, at::zeros(param.value.sizes(),
                                        parts_[0]->partition.tensor_options().dtype(param.value.scalar_type())));
  if (!values) return;
  for (ZeroPart* part : parts_) part->fill(values);
  for (const Param& param : frozen_)
    if (param.declared) fill_params({param}, values);
  finish_gathers();
}

std::size_t Zero::group_of(const std::string& param) const {
  std::size_t group = 0;
  while (group < names_.size() && !matches_any(names_[group], param)) ++group;
  return group;
}

const std::vector<std::string>& Zero::state_names(const std::string& param) const {
  return updates_[group_of(param)].optimizer->state_names();
}

Zero::Zero(std::vector<Param> params, UnitPlan units, Mesh& mesh, const ZeroOptions& options,
           const UpdateOptions& update, const ParamValues& values)
    : Zero({ModelChunk{std::move(params), std::move(units)}}, mesh, options, update, values) {}

void Zero::finish_gradients() {
  for (ZeroPart* part : trained()) part->gradients.finish();
  tied_.sum();
  finish_gathers();  // for buckets that no forward has waited for
  gradients_finished_ = true;
}

void Zero::finish_gathers() {
  for (ZeroPart* part : parts_) part->params.finish_gathers();
}

PendingUpdate Zero::update(const Update& update) {
  require(num_trained_ == 0 || !parts_[0]->partition.options().forward_only,
          "update() of a model that is for forwards only");
  require(std::exchange(gradients_finished_, false),
          "update() before the gradients are summed\n  fix: finish_gradients() first");
  const at::Tensor norm = grad_norm();
  const kernels::GradientFactor factor{update_factor(norm, update.max_norm, update.loss_scale, update.skip_above)};
  std::vector<ShardedOptimizer*> optimizers;
  for (ZeroPart* part : parts_) {
    part->optimizer.step(update.lr * part->lr_factor, factor);
    optimizers.push_back(&part->optimizer);
  }
  return {norm / update.loss_scale, update.skip_above, std::move(optimizers)};
}

at::Tensor Zero::grad_norm() {
  const at::NoGradGuard no_grad;
  at::Tensor squares;
  for (ZeroPart* part : trained()) {
    const at::Tensor own = part->norm.sum_of_squares(part->gradients);
    squares = squares.defined() ? squares + own : own;
  }
  if (!squares.defined())  // all of this pipeline rank is frozen
    squares = at::zeros({1}, parts_[0]->partition.tensor_options().dtype(at::kDouble));
  return mesh_.group(Axis::pp).all_reduce(squares).wait()[0].sqrt();
}

std::vector<std::string> Zero::not_finite() const {
  std::vector<std::string> names;
  for (const ZeroPart* part : trained())
    for (std::string& name : part->norm.not_finite()) names.push_back(std::move(name));
  return names;
}

void Zero::on_gradient(const std::function<void(const Param&, const at::Tensor&)>& f) {
  for (ZeroPart* part : trained()) part->gradients.on_gradient(f);
}

ZeroPart& Zero::part() const {
  require(num_trained_ == 1, "the model has ", num_trained_, " trained parts, not one");
  return *parts_[0];
}

}  // namespace trireme
