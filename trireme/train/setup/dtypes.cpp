#include "trireme/train/setup/dtypes.hpp"

#include <array>
#include <utility>

#include "trireme/base/error.hpp"
#include "trireme/kernels/matmul/matmul.hpp"

namespace trireme {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 4> kNames{
    {{"float64", at::kDouble}, {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}}};

struct FileDtype {
  at::ScalarType ours;
  files::SafetensorsDtype theirs;
};
constexpr std::array<FileDtype, 5> kFileDtypes{{{at::kDouble, files::SafetensorsDtype::F64},
                                                {at::kFloat, files::SafetensorsDtype::F32},
                                                {at::kHalf, files::SafetensorsDtype::F16},
                                                {at::kBFloat16, files::SafetensorsDtype::BF16},
                                                {at::kByte, files::SafetensorsDtype::U8}}};

}  // namespace

files::SafetensorsDtype file_dtype(at::ScalarType dtype) {
  for (const FileDtype& known : kFileDtypes)
    if (known.ours == dtype) return known.theirs;
  throw InternalError(text("no tensor of a run is ", dtype));
}

at::ScalarType scalar_type(files::SafetensorsDtype dtype) {
  for (const FileDtype& known : kFileDtypes)
    if (known.theirs == dtype) return known.ours;
  throw InternalError(text("no tensor of a run is ", files::name(dtype)));
}

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
