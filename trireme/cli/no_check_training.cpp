// The part of `trireme config check` that looks at files and at this machine, in a build without libtorch.
#include "trireme/cli/commands.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/data/tokens/open_tokens.hpp"

namespace trireme::cli {

std::string check_training(const Config& config, std::vector<std::string>& /*warnings*/) {
  if (!config.tokenizer.path.empty()) {
    const std::int64_t tokens = data::Tokenizer::load(config.tokenizer.path).vocab_size();
    require<ConfigError>(tokens <= config.model.vocab_size, "tokenizer.path = \"", config.tokenizer.path, "\" has ",
                         tokens, " tokens, model.vocab_size = ", config.model.vocab_size,
                         "\n  fix: model.vocab_size = ", tokens);
  }
  for (const DataStage& stage : config.data)
    for (const DataSource& source : stage.sources)
      if (source.path != "synthetic") data::open_tokens(source.path);
  return "machine      this build has no libtorch: it trains nothing, and does not look into token files\n";
}

}  // namespace trireme::cli
