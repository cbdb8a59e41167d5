#pragma once
// The type of a token id.
#include <cstdint>

namespace trireme::data {

using TokenId = std::uint32_t;

}  // namespace trireme::data
