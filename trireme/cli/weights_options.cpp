// The options of `trireme convert` and `trireme reshape`.
#include <memory>

#include <CLI/CLI.hpp>

#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/command_choice.hpp"

namespace trireme::cli {

void add_convert(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<ConvertCommand>();
  CLI::App* cmd =
      app.add_subcommand("convert", "Convert the weights of a model to a Hugging Face folder or a nanotron checkpoint");
  cmd->add_option("source", options->source,
                  "a Hugging Face folder, a nanotron checkpoint, or a run, one of its checkpoints, or their folder")
      ->required();
  cmd->add_option("output", options->output, "new folder to write")->required();
  cmd->add_option("--to", options->to, "hf or nanotron")->required();
  cmd->add_option("--dtype", options->dtype,
                  "bfloat16, float16, float32 or float64, rounded to nearest; default: as in the source; of a run: its "
                  "precision.param");
  cmd->add_option("--tp", options->tp, "nanotron: tensor-parallel ranks to shard the weights for")
      ->capture_default_str();
  cmd->add_option("--pp", options->pp, "nanotron: pipeline ranks to name the files for")->capture_default_str();
  cmd->add_option("--layout", options->layout,
                  "nanotron: file names as its code writes them (code), or as its documentation does (documented)")
      ->capture_default_str();
  cmd->footer(
      "config.json and the tokenizer's files are copied too. The folder appears once it is complete; nothing is "
      "overwritten.\n\nExample:\n  trireme convert models/llama checkpoints/llama --to nanotron --tp 2\n"
      "  trireme convert runs/latest models/trained --to hf");
  cmd->callback(
      [options, &choice] { choice.run = [options](Console& console) { return run_convert(*options, console); }; });
}

void add_reshape(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<ReshapeCommand>();
  CLI::App* cmd = app.add_subcommand("reshape", "Rewrite a checkpoint as the files of another layout");
  cmd->add_option("checkpoint", options->checkpoint,
                  "a checkpoint, or the folder of a run: then its newest valid checkpoint")
      ->required();
  cmd->add_option(
         "--to", options->to,
         "the layout: any of pp, dp, cp, tp, ep, expert_tp, zero, replicate, virtual_stages; others are unchanged")
      ->required();
  cmd->add_option("-o,--output", options->output, "new folder; the checkpoint is step-N in it")->required();
  cmd->footer(
      "`trireme train` loads any checkpoint on any layout: this is only for tools that read per-rank files.\n"
      "Every byte is verified. The folder appears once it is complete; nothing is overwritten.\n\n"
      "Example:\n  trireme reshape runs/latest --to tp=1,pp=2 -o reshaped");
  cmd->callback([options, &choice] {
    options->version = "trireme " TRIREME_VERSION;
    choice.run = [options](Console& console) { return run_reshape(*options, console); };
  });
}

}  // namespace trireme::cli
