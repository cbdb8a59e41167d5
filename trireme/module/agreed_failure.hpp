#pragma once
// What fails on one rank fails on all of them: the ranks of a group tell each other how their local work has ended.
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {

/// What a rank failed with, to be thrown on all of them.
struct Failure {
  ExitCode code = ExitCode::done;
  std::string what{};
};

/// How action() ends. Lets a CommError through: the others do not answer any more. An exception that is no Error is a
/// failure of the checkpoint, or of memory.
Failure failure_of(const std::function<void()>& action);

/// Collective, with tensors of `device`: throws the failure of the first rank that has one, as an error of the same
/// type. Else returns the `words` of each rank.
std::vector<std::string> agree_on(Group& group, at::Device device, const Failure& own, const std::string& words = "");

/// Collective, with tensors of `device`: the root's text, on every rank. Unlike agree_on() no rank gets those of all.
std::string broadcast_text(Group& group, at::Device device, const std::string& words, int root = 0);

}  // namespace trireme
