// The options of the commands that run a model: verify, generate, evaluate.
#include "trireme/cli/model_options.hpp"

#include "trireme/cli/commands.hpp"

namespace trireme::cli {
namespace {

void add_verify(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  auto command = std::make_shared<VerifyCommand>();
  CLI::App* cmd = app.add_subcommand("verify", "Compare a layout with one rank: loss and every gradient");
  cmd->add_option("config", command->file, "config file")->required();
  cmd->add_option("-n,--ranks", command->ranks, "ranks of the layout; default: as many as it needs, with dp = -1 as 1");
  cmd->add_option("--against", command->against,
                  "another layout to compare with, \"tp=2,pp=2\"; what is not listed is 1");
  cmd->add_option("--steps", command->steps, "batches to compare; all with the initial weights")->capture_default_str();
  cmd->add_option("--dtype", command->dtype, "float64, float32, bfloat16 or float16; the bound is that of its rounding")
      ->capture_default_str();
  cmd->add_flag("--json", command->json, "print one JSON object: every gradient and activation");
  cmd->footer(
      "Same weights, same batches. Reports which module differs first: in forward by its output, in backward by its "
      "gradients. Exit code 0: agrees, 1: differs. On CPUs the ranks are threads of this process; with GPUs, and "
      "under torchrun, srun or mpirun, they are processes. Any key can be set: --section.key VALUE.\n\n"
      "Example:\n  trireme verify examples/tiny.toml -n 4 --parallelism.tp 2");
  cmd->callback([command, &words, chosen] {
    command->overrides = words.overrides;
    command->words = words.all;
    chosen([command](Console& console) { return run_verify(*command, console); });
  });
}

void add_generate(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  auto command = std::make_shared<GenerateCommand>();
  CLI::App* cmd = app.add_subcommand("generate", "Continue a text with a trained model");
  cmd->add_option("checkpoint", command->checkpoint, "a run, one of its checkpoints, or a Hugging Face folder")
      ->required();
  CLI::Option* prompt = cmd->add_option("-p,--prompt", command->prompt, "the text to continue");
  cmd->add_option("--prompts", command->prompts_file,
                  "a file of prompts: one per line, or JSON lines with \"prompt\"; - is standard input")
      ->excludes(prompt);
  cmd->add_option("-n,--tokens", command->tokens, "tokens to generate, at most")->capture_default_str();
  cmd->add_option("--temperature", command->temperature, "0: always the most probable token")->capture_default_str();
  cmd->add_option("--top-k", command->top_k, "sample from the K most probable tokens; 0: all")->capture_default_str();
  cmd->add_option("--top-p", command->top_p, "sample from the fewest tokens with at least this probability together")
      ->capture_default_str();
  cmd->add_option("--repetition-penalty", command->repetition_penalty, "above 1: penalizes tokens that already occur")
      ->capture_default_str();
  cmd->add_option("--stop", command->stop, "end before this text; may be given several times")->allow_extra_args(false);
  cmd->add_option("--seed", command->seed, "seed for sampling")->capture_default_str();
  cmd->add_option("--tp", command->tp, "tensor-parallel ranks; the text is the same for all")->capture_default_str();
  cmd->add_option("--pp", command->pp, "pipeline ranks")->capture_default_str();
  cmd->add_option("--batch", command->batch, "prompts per batch")->capture_default_str();
  cmd->add_option("--dtype", command->dtype, "auto: bfloat16 where the device multiplies it natively, else float32")
      ->capture_default_str();
  cmd->add_option("-t,--tokenizer", command->tokenizer, "if the checkpoint has none");
  cmd->add_flag("--chat", command->chat,
                "a prompt is a message, and the answer is printed; JSON lines of --prompts may have \"messages\"");
  cmd->add_option("--system", command->system, "with --chat: the system message");
  cmd->add_flag("--no-cache", command->no_cache, "recompute all tokens for each new one: slow, for comparisons");
  cmd->add_flag("--json", command->json, "print JSON lines: prompt, text, tokens, and why it ended");
  cmd->footer(
      "Example:\n  trireme generate runs/latest -p \"ROMEO:\" -n 100 --temperature 0.8\n"
      "  trireme generate runs/latest --chat -p \"What is your name?\"");
  cmd->callback([command, &words, chosen] {
    command->words = words.all;
    chosen([command](Console& console) { return run_generate(*command, console); });
  });
}

void add_evaluate(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  auto command = std::make_shared<EvaluateCommand>();
  CLI::App* cmd = app.add_subcommand("evaluate", "Loss and perplexity of a trained model on token files");
  cmd->add_option("checkpoint", command->checkpoint, "a run, one of its checkpoints, or a Hugging Face folder")
      ->required();
  cmd->add_option("--data", command->files, "token files, as written by `trireme data prepare`")->required();
  cmd->add_option("--seq-len", command->seq_len, "tokens per sample; default: seq_len of the run, else at most 1,024");
  cmd->add_option("--samples", command->samples, "samples per file, spread evenly over it; default: all");
  cmd->add_option("--micro-batch-size", command->micro_batch_size, "samples per microbatch")->capture_default_str();
  cmd->add_option("--dp", command->dp, "data-parallel ranks; the result is the same on every layout")
      ->capture_default_str();
  cmd->add_option("--tp", command->tp, "tensor-parallel ranks")->capture_default_str();
  cmd->add_option("--pp", command->pp, "pipeline ranks")->capture_default_str();
  cmd->add_option("--cp", command->cp, "context-parallel ranks")->capture_default_str();
  cmd->add_option("--zero", command->zero, "3: weights sharded over dp")->capture_default_str();
  cmd->add_option("--dtype", command->dtype, "auto: bfloat16 where the device multiplies it natively, else float32")
      ->capture_default_str();
  cmd->add_option("-t,--tokenizer", command->tokenizer, "if the checkpoint has none");
  cmd->add_flag("--json", command->json, "print one JSON object");
  cmd->footer("Example:\n  trireme evaluate runs/latest --data data/book-validation.ds");
  cmd->callback([command, &words, chosen] {
    command->words = words.all;
    chosen([command](Console& console) { return run_evaluate(*command, console); });
  });
}

}  // namespace

void add_model_commands(CLI::App& app, const CommandWords& words, const Chosen& chosen) {
  add_verify(app, words, chosen);
  add_generate(app, words, chosen);
  add_evaluate(app, words, chosen);
}

}  // namespace trireme::cli
