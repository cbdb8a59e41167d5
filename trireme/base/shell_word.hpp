#pragma once
#include <string>

namespace trireme {

/// As a shell reads it back as one word: in single quotes, unless it has only letters, digits and plain punctuation.
std::string shell_word(const std::string& word);

}  // namespace trireme
