#include "trireme/base/file_output.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/config/read/reference.hpp"
#include "trireme/config/read/starter.hpp"

namespace trireme::cli {

ExitCode run_config_explain(const ConfigExplainOptions& options, Console& console) {
  console.out << (options.markdown ? config::reference_markdown() : config::explain(options.key));
  return ExitCode::done;
}

ExitCode run_config_new(const ConfigNewOptions& options, Console& console) {
  const std::string toml = config::starter_toml(options.preset, options.hf);
  if (options.output.empty()) {
    console.out << toml;
    return ExitCode::done;
  }
  require<ConfigError>(!std::filesystem::exists(options.output), options.output,
                       " is there already\n  fix: another -o, or remove it first");
  replace_file(options.output, toml);
  console.out << "written to " << options.output << "\n";
  return ExitCode::done;
}

}  // namespace trireme::cli
