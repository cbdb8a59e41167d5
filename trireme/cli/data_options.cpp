#include <memory>
#include <tuple>

#include <CLI/CLI.hpp>

#include "trireme/cli/command_group.hpp"
#include "trireme/cli/data.hpp"

namespace trireme::cli {
namespace {

void add_text(CLI::App& cmd, TextOptions& words) {
  cmd.add_option(
         "input", words.inputs,
         "files (.jsonl, .json, .txt, ..., optionally with .gz or .zst), folders of them, or - for standard input")
      ->required();
  for (auto [name, patterns, what] :
       {std::tuple("--include", &words.include, "in folders, only files that match GLOB"),
        std::tuple("--exclude", &words.exclude, "in folders, skip files that match GLOB")})
    cmd.add_option(name, *patterns, what)
        ->type_name("GLOB")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  cmd.add_option("--key", words.key, "key of the text in a JSON line")->capture_default_str();
  cmd.add_option("--documents", words.documents, "what a document is in a text file: file, lines or blank-line")
      ->capture_default_str();
  cmd.add_flag("--chat", words.chat, "JSON lines are conversations: messages, ShareGPT, Alpaca, prompt and completion");
  cmd.add_option("--template", words.chat_template, "for --chat: auto (the model's own), chatml, plain or a JSON file")
      ->capture_default_str();
  cmd.add_flag("--skip-bad", words.skip_bad, "skip and count lines that are not such JSON");
  cmd.add_option("--workers", words.workers, "threads; default: all cores");
  cmd.add_flag("-q,--quiet", words.quiet, "print only the summary");
}

void add_prepare(CLI::App& data, const Chosen& chosen) {
  auto command = std::make_shared<PrepareCommand>();
  CLI::App* cmd = data.add_subcommand("prepare", "Turn text into token files");
  add_text(*cmd, command->text);
  cmd->add_option(
      "-t,--tokenizer", command->tokenizer,
      "tokenizer.json, tekken.json, a .model file of SentencePiece, a folder with one, a .tiktoken file, or bytes");
  cmd->add_option("--train-bpe", command->train_bpe,
                  "instead of -t: train a tokenizer of N tokens, OUT-tokenizer.json");
  cmd->add_option("--pattern", command->pattern, "for --train-bpe: gpt2, llama3 or qwen2")->capture_default_str();
  cmd->add_option("-o,--output", command->output, "OUT.ds; megatron: OUT_KEY_document.bin, .idx; llmc: OUT.bin")
      ->required();
  cmd->add_option("--format", command->format, "datatrove, megatron or llmc")->capture_default_str();
  cmd->add_flag("--append-eod,!--no-append-eod", command->append_eod,
                "end-of-document token after each document; default: yes");
  cmd->add_flag("--shuffle,!--no-shuffle", command->shuffle, "shuffle the documents");
  cmd->add_option("--validation", command->validation, "share of documents that goes to OUT-validation instead");
  cmd->add_option("--seed", command->seed, "seed for --shuffle and --validation")->capture_default_str();
  cmd->add_option("--tokenizer-name", command->tokenizer_name, "tokenizer name to record; default: its file");
  cmd->add_flag("--overwrite", command->overwrite, "replace existing output");
  cmd->footer(
      "Example:\n  trireme data prepare book.txt --train-bpe 512 -o data/book\n"
      "  trireme data prepare raw/ -t gpt2/tokenizer.json -o data/wiki --shuffle --validation 0.01");
  runs(*cmd, chosen, command, run_data_prepare);
}

void add_train_bpe(CLI::App& data, const Chosen& chosen) {
  auto command = std::make_shared<TrainBpeCommand>();
  CLI::App* cmd = data.add_subcommand("train-bpe", "Train a byte-level tokenizer");
  add_text(*cmd, command->text);
  cmd->add_option("-o,--output", command->output, "tokenizer.json to write")->required();
  cmd->add_option("--vocab-size", command->vocab_size, "number of tokens, including bytes and special tokens")
      ->capture_default_str();
  cmd->add_option("--pattern", command->pattern, "how text is cut into words: gpt2, llama3 or qwen2")
      ->capture_default_str();
  cmd->add_option("--special", command->special, "special tokens, each with its own --special; default: <|endoftext|>")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  cmd->add_option("--min-frequency", command->min_frequency, "ignore pairs that occur less often");
  cmd->add_flag("--overwrite", command->overwrite, "replace existing output");
  cmd->footer("Example:\n  trireme data train-bpe raw/*.jsonl --vocab-size 32000 -o tokenizer.json");
  runs(*cmd, chosen, command, run_data_train_bpe);
}

void add_inspect(CLI::App& data, const Chosen& chosen) {
  auto command = std::make_shared<InspectCommand>();
  CLI::App* cmd = data.add_subcommand("inspect", "Show what is in token files");
  cmd->add_option("path", command->path, "x.ds, x (of x.idx and x.bin), x.bin, a folder or a pattern")->required();
  cmd->add_option("-t,--tokenizer", command->tokenizer,
                  "compare with this one, and show text; default: the one that the data names, if it still exists");
  cmd->add_option("-n,--num-documents", command->documents, "documents to show")->capture_default_str();
  cmd->footer("Example:\n  trireme data inspect data/book.ds -t data/book-tokenizer.json -n 2");
  runs(*cmd, chosen, command, run_data_inspect);
}

void add_merge(CLI::App& data, const Chosen& chosen) {
  auto command = std::make_shared<MergeCommand>();
  CLI::App* cmd = data.add_subcommand("merge", "Merge token files, of one format or several, into one data set");
  cmd->add_option("input", command->inputs, "data sets, in this order")->required();
  cmd->add_option("-o,--output", command->output, "data set to write")->required();
  cmd->add_option("--format", command->format, "datatrove, megatron or llmc")->capture_default_str();
  cmd->add_option("-t,--tokenizer", command->tokenizer, "for llm.c files, which do not mark where documents end");
  cmd->add_flag("--force", command->force, "merge them even if their tokenizers differ");
  cmd->add_flag("-q,--quiet", command->quiet, "print only the summary");
  cmd->add_flag("--overwrite", command->overwrite, "replace existing output");
  cmd->footer("Example:\n  trireme data merge a.ds b.ds -o all --format megatron");
  runs(*cmd, chosen, command, run_data_merge);
}

}  // namespace

void add_data(CLI::App& app, const Chosen& chosen) {
  CLI::App* data = app.add_subcommand("data", "Create, inspect and merge token files; train tokenizers");
  data->require_subcommand(1);
  add_prepare(*data, chosen);
  add_train_bpe(*data, chosen);
  add_inspect(*data, chosen);
  add_merge(*data, chosen);
}

}  // namespace trireme::cli
