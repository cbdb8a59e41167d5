// A user's program against an installed trireme.
#include <iostream>

#include "trireme/config/schema/counts.hpp"
#include "trireme/config/schema/derive.hpp"
#include "trireme/layout/grid.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

int main() {
  trireme::LoadedConfig loaded = trireme::load_config("", trireme::parse_flags({"--model.preset", "gpt2"}));
  trireme::derive(loaded);
  std::cout << trireme::Grid::dense({.dp = 2, .tp = 2}).str() << "; 1f1b bubble "
            << trireme::replay(trireme::make_schedule("1f1b", 2, 4)).bubble << "; "
            << trireme::count_parameters(loaded.config.model).total() << " parameters\n";
}
