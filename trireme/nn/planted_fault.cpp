#include "trireme/nn/planted_fault.hpp"

#include <array>
#include <utility>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::array kFaultNames = {
    std::pair{"lost_sum", Fault::lost_sum},
    std::pair{"lost_partial", Fault::lost_partial},
    std::pair{"lost_tie", Fault::lost_tie},
    std::pair{"shifted_values", Fault::shifted_values},
};

// Written before any rank exists.
bool planted = false;
Fault planted_fault{};
std::string planted_module;

}  // namespace

void plant_fault(const std::string& kind_and_module) {
  const std::size_t space = kind_and_module.find(' ');
  for (const auto& [name, fault] : kFaultNames) {
    if (kind_and_module.substr(0, space) != name || space == std::string::npos) continue;
    planted_fault = fault;
    planted_module = kind_and_module.substr(space + 1);
    planted = true;
    return;
  }
  throw ConfigError(text("TRIREME_TEST_FAULT = \"", kind_and_module, "\": must be KIND MODULE"));
}

bool is_planted(Fault fault, const std::string& module) {
  return planted && planted_fault == fault && planted_module == module;
}

at::Tensor with_planted_loss(const at::Tensor& part, const std::string& module, const Group& tp) {
  return is_planted(Fault::lost_sum, module) && tp.rank() > 0 ? part * 0 : part;
}

}  // namespace trireme
