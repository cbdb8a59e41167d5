#pragma once
// What one pipeline rank does, as data: steps, programs, and their text form "0F0 0F1 0B0 ...".
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::schedule {

/// F forward; B backward, both gradients; I gradient of the input alone; W gradient of the weights alone.
enum class ActionKind : std::uint8_t { F, B, I, W };

/// `chunk` is a place in the model, counted from the embedding to the loss. With one chunk a rank it is the stage.
struct Action {
  ActionKind op;
  int chunk;
  int microbatch;
  auto operator<=>(const Action&) const = default;
};

using Program = std::vector<Action>;  // what one rank does, in order

/// The chunk, the op, the microbatch: "0F3".
std::string str(const Action& step);
/// The steps, separated by spaces.
std::string str(const Program& program);

/// The reverse of `str`. Throws ConfigError that names the word and what is wrong with it.
Action parse_step(std::string_view word);
Program parse_program(std::string_view text);

}  // namespace trireme::schedule
