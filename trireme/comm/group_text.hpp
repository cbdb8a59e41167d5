#pragma once
// Texts between ranks. The group must take host tensors: World::control() does on every backend.
#include <string>
#include <vector>

#include "trireme/comm/group.hpp"

namespace trireme {

/// The root's text, on every rank. Collective.
std::string broadcast_text(Group& group, const std::string& words, int root = 0);

/// The texts of all ranks, by rank, on the root; empty on the others. Collective.
std::vector<std::string> gather_texts(Group& group, const std::string& words, int root = 0);

/// Collective: the failure of the first rank that has one, "rank 3: ...", on all ranks; empty if no rank has.
std::string first_failure(Group& group, const std::string& own);

}  // namespace trireme
