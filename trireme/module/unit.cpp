#include "trireme/module/unit.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

// Hooks of tensors, not autograd functions around the call: an in-place operation before or after it stays legal.

void hook_inputs(const std::vector<at::Tensor>& tensors, const std::shared_ptr<CallHooks>& hooks, std::int64_t call) {
  if (!at::GradMode::is_enabled()) return;
  const auto missing = std::make_shared<int>(0);
  // Not leaves: their gradient may be known before those of the unit's parameters, and their hooks outlive the graph.
  const auto counts = [](const at::Tensor& x) { return x.requires_grad() && !x.is_leaf(); };
  for (const at::Tensor& x : tensors) *missing += counts(x) ? 1 : 0;
  const int all = *missing;
  for (const at::Tensor& x : tensors)
    if (counts(x))
      x.register_hook([hooks, missing, all, call](const at::Tensor&) {
        if (--*missing > 0) return;
        *missing = all;  // for another backward through the same graph
        hooks->after_backward(call);
      });
}

void hook_outputs(const std::vector<at::Tensor>& tensors, const std::shared_ptr<CallHooks>& hooks, std::int64_t call) {
  if (!at::GradMode::is_enabled()) return;
  for (const at::Tensor& y : tensors)
    if (y.requires_grad() && !y.is_leaf())
      y.register_hook([hooks, call](const at::Tensor&) { hooks->before_backward(call); });
}

void throw_unknown_result(const char* type) {
  throw ConfigError(text("a unit returns a value of type ", type, ", whose tensors are not known\n",
                         "  fix: return tensors, tuples, lists or maps of them, or give the class a member ",
                         "`template <class F> void for_each_tensor(F f)` that calls f for each of its tensors"));
}

}  // namespace trireme
