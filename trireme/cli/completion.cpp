#include "trireme/cli/completion.hpp"

#include <algorithm>
#include <map>

#include <CLI/CLI.hpp>

#include "trireme/base/error.hpp"
#include "trireme/base/shell_word.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::cli {
namespace {

using Words = std::vector<std::string>;

// The shell's functions. Where the program has no answer, the shell completes names of files.
constexpr const char* kBash = R"sh(# Completion of trireme for bash:  source <(trireme completion bash)
_trireme() {
  local IFS=$'\n'
  COMPREPLY=($(PROGRAM completion --words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o filenames -F _trireme trireme
)sh";
constexpr const char* kZsh = R"sh(# Completion of trireme for zsh:  source <(trireme completion zsh)
_trireme() {
  local -a found
  found=(${(f)"$(PROGRAM completion --words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -- $found; else _files; fi
}
compdef _trireme trireme
)sh";
constexpr const char* kFish = R"sh(# Completion of trireme for fish:  trireme completion fish | source
function __trireme_words
  set -l words (commandline -opc) (commandline -ct)
  PROGRAM completion --words -- $words[2..-1] 2>/dev/null
end
complete -c trireme -a '(__trireme_words)'
)sh";

Words command_names(const CLI::App& app) {
  Words out;
  for (const CLI::App* command : app.get_subcommands(nullptr)) out.push_back(command->get_name());
  return out;
}

/// Options of `app`, except hidden ones.
Words option_names(const CLI::App& app) {
  Words out;
  for (const CLI::Option* option : app.get_options(nullptr)) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
    for (const std::string& name : option->get_snames()) out.push_back("-" + name);
  }
  return out;
}

Words config_keys(const std::string& before) {
  Config config;
  Words out;
  for (const config::Field& field : config::fields(config)) out.push_back(before + field.key);
  return out;
}

/// Of a setting --section.key.
Words values_of_key(const std::string& key) {
  Config config;
  config.data.resize(1);
  config.data[0].sources.resize(1);
  for (const config::Field& field : config::fields(config)) {
    if (field.key != key) continue;
    if (std::holds_alternative<bool*>(field.value)) return {"true", "false"};
    if (key == "model.preset") return config::preset_names();
    return field.choices;
  }
  return {};
}

/// Of an option or an argument, by its name.
Words values_of_option(const std::string& name) {
  static const std::map<std::string, Words> known = {
      {"--to", {"hf", "nanotron"}},
      {"--layout", {"code", "documented"}},
      {"--dtype", {"auto", "bfloat16", "float16", "float32", "float64"}},
      {"--format", {"datatrove", "megatron", "llmc"}},
      {"--pattern", {"gpt2", "llama3", "qwen2"}},
      {"--documents", {"file", "lines", "blank-line"}},
      {"--template", {"auto", "chatml", "plain"}},
      {"--from", {"nanotron", "torchtitan", "megatron", "deepspeed", "trainer", "hf"}},
      {"--resume", {"auto", "never"}},
      {"--zero", {"0", "1", "2", "3"}},
  };
  if (name == "--preset") return config::preset_names();
  if (name == "--console") return values_of_key("metrics.console");
  const auto found = known.find(name);
  return found == known.end() ? Words() : found->second;
}

Words values_of_argument(const std::string& command) {
  if (command == "schedule") return schedule::schedule_names();
  if (command == "config explain") return config_keys("");
  if (command == "completion") return {"bash", "zsh", "fish"};
  return {};
}

bool takes_value(const CLI::App& app, const std::string& word) {
  const CLI::Option* option = app.get_option_no_throw(word);
  return option != nullptr && option->get_items_expected_max() > 0;
}

}  // namespace

const CLI::App* inner_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands(nullptr))
    if (command->get_name() == name) return command;
  return nullptr;
}

std::string completion_script(const std::string& shell, const std::string& program) {
  require<ConfigError>(shell == "bash" || shell == "zsh" || shell == "fish", "completion ", shell,
                       ": is for bash, zsh and fish\n  fix: trireme completion bash");
  std::string script = shell == "bash" ? kBash : shell == "zsh" ? kZsh : kFish;
  constexpr std::string_view kProgram = "PROGRAM";
  return script.replace(script.find(kProgram), kProgram.size(), shell_word(program));
}

Words completions(const CLI::App& app, const Words& settings, const Words& words) {
  if (words.empty()) return {};
  const CLI::App* command = &app;
  std::string path;
  bool has_argument = false;  // a word that is neither a command nor an option or its value
  const bool helps = words.front() == "help";
  for (std::size_t i = helps ? 1 : 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.starts_with('-')) {
      const bool is_setting = word.find('.') != std::string::npos;
      if (word.find('=') == std::string::npos && (is_setting || takes_value(*command, word)) && i + 2 < words.size())
        ++i;
      continue;
    }
    const CLI::App* inner = has_argument ? nullptr : inner_command(*command, word);
    if (inner == nullptr) {
      has_argument = true;
      continue;
    }
    command = inner;
    path += (path.empty() ? "" : " ") + word;
  }
  const std::string &last = words.back(), before = words.size() > 1 ? words[words.size() - 2] : "";
  const bool takes_settings = std::ranges::find(settings, path.substr(0, path.find(' '))) != settings.end();
  Words all;
  if (before.starts_with("--") && before.find('.') != std::string::npos && takes_settings) {
    all = values_of_key(before.substr(2));
  } else if (before.starts_with('-') && takes_value(*command, before)) {
    all = values_of_option(before);
  } else if (last.starts_with('-')) {
    all = option_names(*command);
    if (takes_settings) std::ranges::move(config_keys("--"), std::back_inserter(all));
  } else {
    all = command_names(*command);
    if (path.empty() && !helps) all.emplace_back("help");
    if (!has_argument) std::ranges::move(values_of_argument(path), std::back_inserter(all));
  }
  std::erase_if(all, [&](const std::string& word) { return !word.starts_with(last) || word.empty(); });
  return all;
}

}  // namespace trireme::cli
