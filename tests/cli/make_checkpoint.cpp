// Saves the small checkpoint of the tests: make_checkpoint FOLDER STEP NUMBER. NUMBER decides its values and its id.
#include <cstdio>
#include <string>

#include "trireme/testing/checkpoint_helpers.hpp"

int main(int argc, char** argv) {
  if (argc != 4) return 64;
  try {
    trireme::save_example(trireme::files::real_fs(), argv[1],
                          {.step = std::stoll(argv[2]), .number = std::stoull(argv[3])});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
