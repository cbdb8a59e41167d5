#include "trireme/train/trace/unit_trace.hpp"

#include <utility>

#include <ATen/record_function.h>

#include "trireme/base/stopwatch.hpp"

namespace trireme {

class UnitTrace::Hooks final : public UnitHooks {
 public:
  Hooks(UnitTrace& trace, UnitHooks& inner) : trace_(trace), inner_(inner), first_unit_(trace.names_.size()) {}

  void before_forward(std::size_t unit) override {
    note(UnitEvent::Kind::forward_begin, unit);
    if (trace_.annotates_) {
      annotations_.push_back(std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE));
      annotations_.back()->before(trace_.names_[first_unit_ + unit]);
    }
    inner_.before_forward(unit);
  }
  void after_forward(std::size_t unit) override {
    inner_.after_forward(unit);
    if (!annotations_.empty()) annotations_.pop_back();
    note(UnitEvent::Kind::forward_end, unit);
  }
  void before_backward(std::size_t unit) override {
    note(UnitEvent::Kind::backward_begin, unit);
    inner_.before_backward(unit);
  }

 private:
  void note(UnitEvent::Kind kind, std::size_t unit) {
    if (trace_.memory_ == nullptr) return;
    trace_.samples_.push_back(trace_.memory_->sample());  // not after the mark, which it belongs to
    const std::int64_t now = steady_ns();
    trace_.events_.push_back({kind, first_unit_ + unit, now});
    trace_.clock_->mark(now);
  }

  UnitTrace& trace_;
  UnitHooks& inner_;
  const std::size_t first_unit_;
  std::vector<std::unique_ptr<at::RecordFunction>> annotations_;  // of the units that are in their forward
};

UnitTrace::UnitTrace() = default;
UnitTrace::~UnitTrace() = default;

UnitHooks& UnitTrace::around(UnitHooks& hooks, const UnitPlan& plan) {
  chunks_.push_back(std::make_unique<Hooks>(*this, hooks));
  for (const UnitParams& unit : plan.units) names_.push_back(unit.name);
  return *chunks_.back();
}

void UnitTrace::start(const DeviceMemory& memory, DeviceClock& clock) {
  events_.clear();
  samples_ = {memory.sample()};
  memory_ = &memory;
  clock_ = &clock;
}

std::vector<UnitEvent> UnitTrace::take() {
  if (memory_ != nullptr) samples_.push_back(memory_->sample());
  memory_ = nullptr;
  return std::exchange(events_, {});
}

std::vector<MemorySample> UnitTrace::take_memory() { return std::exchange(samples_, {}); }

}  // namespace trireme
