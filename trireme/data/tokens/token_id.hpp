#pragma once
// The number of a token.
#include <cstdint>

namespace trireme::data {

using TokenId = std::uint32_t;

}  // namespace trireme::data
