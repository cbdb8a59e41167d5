// A user program that links to an installed trireme.
#include <iostream>

#include "trireme/config/read/derive.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

int main() {
  trireme::config::LoadedConfig loaded =
      trireme::config::load_config("", trireme::config::parse_flags({"--model.preset", "gpt2"}));
  trireme::config::derive(loaded);
  std::cout << trireme::Grid::dense({.dp = 2, .tp = 2}).str() << "; 1f1b bubble "
            << trireme::schedule::replay(trireme::schedule::make_schedule("1f1b", 2, 4)).bubble << "; "
            << trireme::config::count_parameters(loaded.config.model).total() << " parameters\n";
}
