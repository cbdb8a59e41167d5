// VerifyResult as text.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/json_text.hpp"
#include "trireme/base/table.hpp"
#include "trireme/verify/verify.hpp"

namespace trireme {
namespace {

std::string short_number(double value) {
  if (value == 0) return "0";
  char out[32];
  std::snprintf(out, sizeof out, "%.1e", value);
  return out;
}

bool more_different(const TensorDifference& a, const TensorDifference& b) {
  return !std::isnan(a.relative) && (std::isnan(b.relative) || a.relative < b.relative);
}

/// The module of the residual stream that a parameter belongs to: "layers.3", or its first word.
std::string stream_module(const std::string& parameter) {
  const std::size_t dot = parameter.find('.');
  if (dot == std::string::npos || parameter.substr(0, dot) != "layers") return parameter.substr(0, dot);
  return parameter.substr(0, parameter.find('.', dot + 1));
}

std::string json_list(const std::vector<TensorDifference>& all) {
  std::string out = "[";
  for (const TensorDifference& d : all)
    out += text(out.size() > 1 ? ", " : "", R"({"name": )", json_string(d.name), R"(, "max_abs": )",
                json_number(d.max_abs), R"(, "relative": )", json_number(d.relative), R"(, "within": )",
                d.within ? "true" : "false", "}");
  return out + "]";
}

std::string json_list(const std::vector<double>& all) {
  std::string out = "[";
  for (const double value : all) out += text(out.size() > 1 ? ", " : "", json_number(value));
  return out + "]";
}

}  // namespace

std::string VerifyResult::str() const {
  std::ostringstream out;
  for (std::size_t i = 0; i < losses.size(); ++i)
    out << "step " << i + 1 << ": loss " << human_number(losses[i]) << ", " << reference << " "
        << human_number(reference_losses[i]) << ", difference " << human_number(losses[i] - reference_losses[i])
        << "\n";
  const auto tell = [&](const char* what, const std::vector<TensorDifference>& all) {
    if (all.empty()) return;
    const auto beyond = std::ranges::count_if(all, [](const TensorDifference& d) { return !d.within; });
    const TensorDifference& most = *std::ranges::max_element(all, more_different);
    out << all.size() << " " << what << ": largest relative difference " << human_number(most.relative) << " ("
        << most.name << "), " << beyond << " beyond the tolerance\n";
  };
  tell("activations", activations);
  tell("gradients", gradients);
  out << (passed ? "the layout agrees with " : "the layout differs from ") << reference;
  if (!first_module.empty()) out << ", beginning with " << first_module;
  return out.str();
}

std::string VerifyResult::table() const {
  std::vector<std::string> modules;
  for (const TensorDifference& activation : activations) modules.push_back(activation.name);
  for (const TensorDifference& gradient : gradients)  // a head, positions
    if (std::ranges::find(modules, stream_module(gradient.name)) == modules.end())
      modules.push_back(stream_module(gradient.name));
  std::vector<TableRow> rows;
  for (const std::string& module : modules) {
    TableRow row{module, "–", "–", "", "ok"};
    bool within = true;
    if (const auto found = std::ranges::find(activations, module, &TensorDifference::name);
        found != activations.end()) {
      row[1] = short_number(found->relative);
      within &= found->within;
    }
    const TensorDifference* most = nullptr;
    for (const TensorDifference& gradient : gradients) {
      if (stream_module(gradient.name) != module) continue;
      within &= gradient.within;
      if (most == nullptr || more_different(*most, gradient)) most = &gradient;
    }
    if (most != nullptr) {
      row[2] = short_number(most->relative);
      row[3] = most->name;
    }
    if (!within) row[4] = "BEYOND";
    rows.push_back(std::move(row));
  }
  return trireme::table({"module", "output", "gradients", "the largest of them", ""}, rows);
}

std::string VerifyResult::json() const {
  return text(R"({"passed": )", passed ? "true" : "false", R"(, "reference": )", json_string(reference),
              R"(, "first_module": )", first_module.empty() ? "null" : json_string(first_module), R"(, "losses": )",
              json_list(losses), R"(, "reference_losses": )", json_list(reference_losses),
              R"(, "tolerances": {"loss": )", json_number(tolerances.loss), R"(, "tensor": )",
              json_number(tolerances.tensor), R"(, "least": )", json_number(tolerances.least), R"(}, "activations": )",
              json_list(activations), R"(, "gradients": )", json_list(gradients), "}");
}

}  // namespace trireme
