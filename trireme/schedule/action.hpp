#pragma once
// Pipeline actions (forward, backward of a microbatch), the program of a rank, and their text form "0F0 0F1 0B0 ...".
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::schedule {

/// F forward; B full backward; I gradient of the input only; W gradient of the weights only.
enum class ActionKind : std::uint8_t { F, B, I, W };

/// `chunk` is the index of the model part, from the embedding to the loss. With one chunk per rank it is the stage.
struct Action {
  ActionKind op;
  int chunk;
  int microbatch;
  auto operator<=>(const Action&) const = default;
};

using Program = std::vector<Action>;  // the actions of one rank, in order

/// Chunk, kind and microbatch: "0F3".
std::string str(const Action& action);
/// The actions, separated by spaces.
std::string str(const Program& program);

/// The most microbatches of the rank that are between their forward and the gradient of their input at a time.
int microbatches_in_flight(const Program& program);

/// The inverse of `str`. Throws ConfigError that names the word and what is wrong with it.
Action parse_action(std::string_view word);
Program parse_program(std::string_view text);

}  // namespace trireme::schedule
