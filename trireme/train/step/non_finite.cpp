#include "trireme/train/step/non_finite.hpp"

#include <algorithm>
#include <cstring>

#include <ATen/ops/isfinite.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kWords = 512;  // maximum bytes of a rank's finding

bool is_finite(const at::Tensor& x) { return at::isfinite(x.detach()).all().item<bool>(); }

/// The strings of all ranks, in rank order.
std::vector<std::string> exchange(const std::string& own, const Mesh& mesh, at::Device device) {
  at::Tensor bytes = at::zeros({kWords}, at::kByte);
  std::memcpy(bytes.data_ptr(), own.data(), std::min(own.size(), static_cast<std::size_t>(kWords - 1)));
  const at::Tensor all = mesh.world_group().all_gather(bytes.to(device)).wait().cpu();
  std::vector<std::string> out;
  for (int r = 0; r < mesh.world_group().size(); ++r)
    out.emplace_back(static_cast<const char*>(all.const_data_ptr()) + r * kWords);
  return out;
}

}  // namespace

std::string find_non_finite(Zero& zero, const Mesh& mesh,
                            const std::function<void(const StepProbes& probes)>& run_again) {
  std::string found;
  int microbatch = 0;
  const auto look = [&](const std::string& what, const at::Tensor& x) {
    if (found.empty() && !is_finite(x)) found = text(what, " in microbatch ", microbatch);
  };
  zero.on_gradient(
      [&](const Param& param, const at::Tensor& gradient) { look(text("the gradient of ", param.name), gradient); });
  run_again({.output =
                 [&](int m, const std::string& path, const at::Tensor& x) {
                   microbatch = m;
                   look("the output of " + path, x);
                 },
             .loss =
                 [&](int m, const at::Tensor& loss) {
                   microbatch = m;
                   look("the loss", loss);
                 }});
  zero.finish_gradients();
  zero.on_gradient({});
  // Gradients that are finite on each rank but overflow in the sum over ranks. All ranks check, whatever they found.
  zero.grad_norm();
  if (const std::vector<std::string> names = zero.not_finite(); found.empty() && !names.empty())
    found = text("?", names.front());
  const std::vector<std::string> all = exchange(found, mesh, zero.parts()[0]->partition.tensor_options().device());
  // A tensor that a rank computed itself takes precedence over the reduced gradients: NaN spreads through reductions,
  // over tp already within a forward. If several ranks found one, the first is named.
  for (std::size_t r = 0; r < all.size(); ++r)
    if (!all[r].empty() && all[r][0] != '?') return text("first non-finite value: ", all[r], " on rank ", r);
  for (const std::string& words : all)
    if (!words.empty())
      return text("first non-finite value: the sum of all ranks' gradients of ", words.substr(1),
                  "; each rank's own is finite");
  return "not reproduced when the step was run again: a hardware error, or memory was overwritten";
}

std::string str(const SavedWeights& saved) {
  const std::size_t bad = saved.not_finite.size();
  const std::string where = text(", saved in ", saved.folder.string());
  if (bad == 0) return where;
  return text(where, "\n  not finite in the saved weights: ", saved.not_finite.front(),
              bad == 1 ? "" : text(" and ", bad - 1, bad == 2 ? " more parameter" : " more parameters"));
}

void check_trained(std::int64_t steps, std::int64_t skipped, const SavedWeights& saved) {
  constexpr const char* kFix = "\n  fix: a lower optimizer.lr, a longer warm-up, or other initial weights";
  const bool all_skipped = steps > 0 && skipped == steps;
  if (!saved.not_finite.empty())
    throw NonFiniteError(text("the weights after step ", steps, " are not finite", str(saved),
                              all_skipped ? text("\n  all ", steps, " updates were skipped") : "", kFix));
  if (all_skipped)
    throw NonFiniteError(text("all ", steps, " updates were skipped: no gradient was finite, and nothing was trained",
                              "\n  the weights are the initial ones", str(saved), kFix));
}

}  // namespace trireme
