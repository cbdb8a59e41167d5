#include "trireme/config/rules/rules.hpp"

namespace trireme::config {
namespace {

constexpr const char* kWhyFloat64 = "float64 is for verifying layouts: every dtype must be float64";

/// If one key is float64, all must be.
void check_float64(Rules& rules) {
  const PrecisionConfig& p = rules.config.precision;
  const std::string& model = rules.config.model.dtype;
  const auto check = [&](const std::string& key, const std::string& dtype, const char* other) {
    if (dtype == "float64" || dtype == "auto") return;
    rules.violation(key, text(key, " = \"", dtype, "\" with ", other), kWhyFloat64,
                    text("leave it out, or set ", key, " = \"float64\""));
  };
  check("precision.param", p.param, "model.dtype = \"float64\"");
  check("model.dtype", model, "precision.param = \"float64\"");
  check("precision.reduce", p.reduce, "float64 weights");
  check("precision.accumulate", p.accumulate, "float64 weights");
  check("precision.master", p.master, "float64 weights");
  check("precision.states", p.states, "float64 weights");
  if (p.matmul == "fp8")
    rules.violation("precision.matmul", "precision.matmul = \"fp8\" with float64 weights", kWhyFloat64, "leave it out");
}

}  // namespace

void check_precision(Rules& rules) {
  if (is_float64(rules.config)) return check_float64(rules);
  const PrecisionConfig& p = rules.config.precision;
  // "auto" is only resolved where the ranks run, so it may not match a required dtype.
  const std::string weights = param_dtype(rules.config);
  const auto violation = [&](const char* key, const std::string& dtype, const std::string& why,
                             const std::string& fix) {
    rules.violation(key, text(key, " = \"", dtype, "\" with ", weights, " weights"), why, fix);
  };
  if (p.accumulate != "float32" && p.accumulate != weights)
    violation("precision.accumulate", p.accumulate, "float32, or the dtype of the weights",
              text("set precision.accumulate = \"float32\", or ", p.param == "auto" ? "model.dtype" : "precision.param",
                   " = \"", p.accumulate, "\""));
  if (p.master == "float64")
    violation("precision.master", p.master, kWhyFloat64,
              "set precision.master = \"float32\", or model.dtype = \"float64\"");
  else if (p.master != "float32")
    violation("precision.master", p.master, "most updates are too small for 16 bits, and would be lost",
              "set precision.master = \"float32\"");
  if (p.matmul == "fp8" && weights != "bfloat16" && weights != "auto")
    violation("precision.matmul", p.matmul, "8-bit products are between bfloat16 tensors",
              "set model.dtype = \"bfloat16\", or precision.matmul = \"auto\"");
  if (p.matmul == "fp8" && p.fp8_scaling == "row" && p.fp8_amax == "delayed")
    rules.violation("precision.fp8_amax", "precision.fp8_amax = \"delayed\" with precision.fp8_scaling = \"row\"",
                    "a row holds a different token in each step: earlier maxima do not apply to it",
                    "set precision.fp8_amax = \"step\", or precision.fp8_scaling = \"tensor\"");
  if (p.states == "float16")
    violation("precision.states", p.states, "squared gradients underflow in float16",
              "set precision.states = \"float32\" or \"bfloat16\"");
  else if (p.states == "float64")
    violation("precision.states", p.states, kWhyFloat64,
              "set precision.states = \"float32\", or model.dtype = \"float64\"");
}

}  // namespace trireme::config
