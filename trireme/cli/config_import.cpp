#include <filesystem>

#include "trireme/cli/commands.hpp"
#include "trireme/cli/config_output.hpp"
#include "trireme/config/import/import.hpp"
#include "trireme/config/settings/toml_file.hpp"

namespace trireme::cli {
namespace {

/// What may change the result comes first; the rest is one line, unless all of it is asked for.
void report_import(const config::Imported& imported, bool all, std::ostream& err) {
  if (!imported.notes.empty())
    err << imported.notes.size() << (imported.notes.size() == 1 ? " setting" : " settings")
        << " to review: " << (imported.notes.size() == 1 ? "it" : "they") << " may change the result\n";
  for (const std::string& note : imported.notes) err << "  ! not translated: " << note << "\n";
  if (imported.harmless.empty()) return;
  const bool one = imported.harmless.size() == 1;
  err << imported.harmless.size() << (one ? " key that has" : " keys that have") << " no effect here"
      << (all   ? ":"
          : one ? ": --all shows it"
                : ": --all lists them")
      << "\n";
  if (!all) return;
  for (const std::string& note : imported.harmless) err << "    " << note << "\n";
}

}  // namespace

ExitCode run_config_import(const ConfigOptions& options, Console& console) {
  require<ConfigError>(options.overrides.empty(), "config import takes no settings: ",
                       options.overrides.empty() ? "" : str(options.overrides.front().place),
                       "\n  fix: set them in the file it writes");
  const auto from = config::framework_by_name(options.from);
  require<ConfigError>(options.from.empty() || from, "--from ", options.from,
                       ": unknown trainer\n  fix: one of nanotron, torchtitan, megatron, deepspeed, trainer or hf");
  require_no_file(options.output);
  // A model folder means its config.json.
  std::filesystem::path source = options.file;
  if (std::filesystem::is_directory(source)) source /= "config.json";
  const config::Imported imported =
      config::import_config(source.string(), config::read_config_file(source.string()), from);
  report_import(imported, options.all, console.err);
  const std::string toml = text("# from ", options.file, " (", name(imported.from), ")\n", imported.toml);
  write_config(options.output, toml, console);
  return ExitCode::done;
}

}  // namespace trireme::cli
