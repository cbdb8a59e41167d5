#include "trireme/train/unit_trace.hpp"

#include <utility>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

UnitTrace::UnitTrace(UnitHooks& hooks, const UnitPlan& plan) : hooks_(hooks) {
  for (const Unit& unit : plan.units) names_.push_back(unit.name);
}

void UnitTrace::start() {
  events_.clear();
  on_ = true;
}

std::vector<UnitEvent> UnitTrace::take() {
  on_ = false;
  return std::exchange(events_, {});
}

void UnitTrace::note(UnitEvent::Kind kind, std::size_t unit) {
  if (on_) events_.push_back({kind, unit, steady_ns()});
}

void UnitTrace::before_forward(std::size_t unit) {
  note(UnitEvent::Kind::forward_begin, unit);
  hooks_.before_forward(unit);
}

void UnitTrace::after_forward(std::size_t unit) {
  hooks_.after_forward(unit);
  note(UnitEvent::Kind::forward_end, unit);
}

void UnitTrace::before_backward(std::size_t unit) {
  note(UnitEvent::Kind::backward_begin, unit);
  hooks_.before_backward(unit);
}

}  // namespace trireme
