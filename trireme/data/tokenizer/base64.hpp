#pragma once
#include <string>
#include <string_view>

namespace trireme::data {

/// The bytes that `text` spells; DataError, with `place`, if it is not base64. An empty text is not allowed.
std::string from_base64(std::string_view text, const std::string& place);

}  // namespace trireme::data
