#pragma once
// How far two words are apart, for spelling suggestions.
#include <cstddef>
#include <string_view>

namespace trireme {

/// Number of letters to insert, delete, replace or swap with their neighbour.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace trireme
