// The commands that need libtorch, in a build without it.
#include "trireme/cli/bench.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/data/tokens/open_tokens.hpp"

namespace trireme::cli {
namespace {

[[noreturn]] void refuse(const char* command) {
  throw ConfigError(text(command, ": this build has no libtorch\n  fix: build with -DTRIREME_WITH_TORCH=ON"));
}

}  // namespace

int run_train(const TrainCommand& /*command*/, Console& /*console*/) { refuse("train"); }

int run_verify(const VerifyCommand& /*command*/, Console& /*console*/) { refuse("verify"); }

int run_generate(const GenerateCommand& /*command*/, Console& /*console*/) { refuse("generate"); }

int run_evaluate(const EvaluateCommand& /*command*/, Console& /*console*/) { refuse("evaluate"); }

int run_launch(const LaunchCommand& /*command*/, Console& /*console*/) { refuse("launch"); }

int run_bench_comm(const BenchCommCommand& /*command*/, Console& /*console*/) { refuse("bench comm"); }

int run_bench_fit(const BenchFitCommand& /*command*/, Console& /*console*/) { refuse("bench fit"); }

std::vector<std::vector<std::string>> libtorch_report(const std::vector<std::string>& /*words*/) {
  return {{"libtorch", "not in this build", "it draws schedules and checks configs, but cannot train"}};
}

std::string check_training(const CheckedConfig& checked, std::vector<std::string>& /*warnings*/) {
  const Config& config = checked.config;
  if (!config.tokenizer.path.empty()) {
    const std::int64_t tokens = data::Tokenizer::load(config.tokenizer.path).vocab_size();
    require<ConfigError>(tokens <= config.model.vocab_size, "tokenizer.path = \"", config.tokenizer.path, "\" has ",
                         tokens, " tokens, model.vocab_size = ", config.model.vocab_size,
                         "\n  fix: model.vocab_size = ", tokens);
  }
  for (const DataStage& stage : config.data)
    for (const DataSource& source : stage.sources)
      if (source.path != "synthetic") data::open_tokens(source.path);
  return "machine      this build has no libtorch: it cannot train, and does not check token files\n";
}

}  // namespace trireme::cli
