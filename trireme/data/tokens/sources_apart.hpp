#pragma once
// Checks that validation data is not trained on.
#include <string>
#include <vector>

namespace trireme::data {

/// `training` and `validation`: paths as for open_tokens, or "synthetic"; the same path may occur several times.
/// DataError names a token file that is in both, by whatever name: what is learnt by heart says nothing about new text.
/// Returns warnings: files that two different sources of training have in common. Opens no file; DataError from
/// find_token_files for a path without token files.
std::vector<std::string> check_sources_apart(const std::vector<std::string>& training,
                                             const std::vector<std::string>& validation);

}  // namespace trireme::data
