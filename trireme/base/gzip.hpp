#pragma once
// gzip in memory.
#include <string>
#include <string_view>

namespace trireme {

std::string gzip(std::string_view bytes);

}  // namespace trireme
