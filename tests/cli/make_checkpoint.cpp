// Saves the small checkpoint of the tests: make_checkpoint FOLDER STEP NUMBER [VOCABULARY | export]. NUMBER decides its
// values and its id. With a VOCABULARY it is one of a small llama, with `export` it has weights for transformers, too.
#include <cstdio>
#include <string>

#include "trireme/checkpoint/format/exported_files.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/model_checkpoint.hpp"
#include "trireme/testing/model_helpers.hpp"

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 64;
  try {
    trireme::files::Fs& fs = trireme::files::real_fs();
    const std::int64_t step = std::stoll(argv[2]);
    const std::uint64_t number = std::stoull(argv[3]);
    const bool exports = argc == 5 && std::string_view(argv[4]) == "export";
    if (argc == 4 || exports) {
      trireme::save_example(fs, argv[1], {.step = step, .number = number});
      if (!exports) return 0;
      const std::filesystem::path saved = trireme::example_target(argv[1], {.step = step, .number = number}).final();
      const std::filesystem::path exported = trireme::checkpoint::begin_export(fs, saved);
      std::ofstream(exported / "model.safetensors") << "the weights";
      trireme::checkpoint::add_exported(fs, exported, saved);
    } else {
      trireme::ModelConfig model = trireme::small_model("llama");
      model.vocab_size = std::stoll(argv[4]);
      trireme::save_model(fs, argv[1], model, step, number);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
