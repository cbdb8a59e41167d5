#include "trireme/files/safetensors_dtype.hpp"

#include <algorithm>
#include <array>

namespace trireme::files {
namespace {

struct Facts {
  const char* name;
  int bits;
};
constexpr std::array<Facts, 22> kFacts{{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};
static_assert(kFacts.size() == static_cast<std::size_t>(SafetensorsDtype::U64) + 1);

}  // namespace

const char* name(SafetensorsDtype dtype) { return kFacts.at(static_cast<std::size_t>(dtype)).name; }
int bits(SafetensorsDtype dtype) { return kFacts.at(static_cast<std::size_t>(dtype)).bits; }

std::optional<SafetensorsDtype> safetensors_dtype(std::string_view dtype_name) {
  const auto found =
      std::ranges::find(kFacts, dtype_name, [](const Facts& facts) { return std::string_view(facts.name); });
  if (found == kFacts.end()) return std::nullopt;
  return static_cast<SafetensorsDtype>(found - kFacts.begin());
}

}  // namespace trireme::files
