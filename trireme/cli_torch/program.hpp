#pragma once
// The program `trireme` as a function, for programs that register families of their own.

namespace trireme {

/// All commands of `trireme`, in this program: `./mine train run.toml -n 4`, `./mine config check run.toml`. Returns
/// the exit code for main(). Ranks are processes of this program, which call it with the same arguments: what main()
/// does before, every rank does.
int run_program(int argc, char** argv);

}  // namespace trireme
