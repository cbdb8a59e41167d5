#include "trireme/train/setup/dtypes.hpp"

#include <array>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/matmul.hpp"

namespace trireme {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 4> kNames{
    {{"float64", at::kDouble}, {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}}};

}  // namespace

at::ScalarType scalar_type(const std::string& name) {
  for (const auto& [word, dtype] : kNames)
    if (name == word) return dtype;
  throw ConfigError(text("dtype \"", name, "\": must be float64, float32, bfloat16 or float16"));
}

std::string dtype_word(at::ScalarType dtype) {
  for (const auto& [word, known] : kNames)
    if (dtype == known) return word;
  return c10::toString(dtype);
}

void resolve_dtypes(Config& config, at::Device device) {
  if (config.model.dtype == "auto")
    config.model.dtype = kernels::multiplies_natively(at::kBFloat16, device) ? "bfloat16" : "float32";
  if (config.precision.param == "auto") config.precision.param = config.model.dtype;
}

}  // namespace trireme
