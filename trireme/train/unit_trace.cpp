#include "trireme/train/unit_trace.hpp"

#include <utility>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

class UnitTrace::Hooks final : public UnitHooks {
 public:
  Hooks(UnitTrace& trace, UnitHooks& inner) : trace_(trace), inner_(inner), first_unit_(trace.names_.size()) {}

  void before_forward(std::size_t unit) override {
    note(UnitEvent::Kind::forward_begin, unit);
    inner_.before_forward(unit);
  }
  void after_forward(std::size_t unit) override {
    inner_.after_forward(unit);
    note(UnitEvent::Kind::forward_end, unit);
  }
  void before_backward(std::size_t unit) override {
    note(UnitEvent::Kind::backward_begin, unit);
    inner_.before_backward(unit);
  }

 private:
  void note(UnitEvent::Kind kind, std::size_t unit) {
    if (trace_.on_) trace_.events_.push_back({kind, first_unit_ + unit, steady_ns()});
  }

  UnitTrace& trace_;
  UnitHooks& inner_;
  const std::size_t first_unit_;
};

UnitTrace::UnitTrace() = default;
UnitTrace::~UnitTrace() = default;

UnitHooks& UnitTrace::around(UnitHooks& hooks, const UnitPlan& plan) {
  chunks_.push_back(std::make_unique<Hooks>(*this, hooks));
  for (const UnitParams& unit : plan.units) names_.push_back(unit.name);
  return *chunks_.back();
}

void UnitTrace::start() {
  events_.clear();
  on_ = true;
}

std::vector<UnitEvent> UnitTrace::take() {
  on_ = false;
  return std::exchange(events_, {});
}

}  // namespace trireme
