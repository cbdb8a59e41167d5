#include "trireme/cli/commands.hpp"
#include "trireme/cli/config_output.hpp"
#include "trireme/config/read/reference.hpp"
#include "trireme/config/read/starter.hpp"

namespace trireme::cli {

ExitCode run_config_explain(const ConfigExplainOptions& options, Console& console) {
  console.out << (options.markdown ? config::reference_markdown() : config::explain(options.key));
  return ExitCode::done;
}

ExitCode run_config_new(const ConfigNewOptions& options, Console& console) {
  const std::string toml = config::starter_toml(options.preset, options.hf);
  write_config(options.output, toml, console);
  return ExitCode::done;
}

}  // namespace trireme::cli
