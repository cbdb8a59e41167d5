#include "trireme/cli/completion.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>

#include "trireme/base/error.hpp"
#include "trireme/config/schema/config.hpp"
#include "trireme/config/schema/fields.hpp"

namespace trireme::cli {
namespace {

/// Commands and options of `app`, except hidden ones.
std::string words_after(const CLI::App& app) {
  std::string words;
  for (const CLI::App* command : app.get_subcommands(nullptr)) words += command->get_name() + " ";
  for (const CLI::Option* option : app.get_options(nullptr)) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames()) words += "--" + name + " ";
    for (const std::string& name : option->get_snames()) words += "-" + name + " ";
  }
  return words;
}

void add_cases(const CLI::App& app, const std::string& path, std::string& out) {
  out += text("    '", path, "') words='", words_after(app), "' ;;\n");
  for (const CLI::App* command : app.get_subcommands(nullptr))
    add_cases(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), out);
}

std::string names_of(const CLI::App& app) {
  std::string out;
  for (const CLI::App* command : app.get_subcommands(nullptr)) out += " " + command->get_name() + names_of(*command);
  return out;
}

}  // namespace

std::string bash_completion(const CLI::App& app, const std::vector<std::string>& settings) {
  std::string cases, keys, commands;
  add_cases(app, "", cases);
  Config config;
  for (const config::Field& field : config::fields(config)) keys += "--" + field.key + " ";
  for (const std::string& command : settings) commands += (commands.empty() ? "" : "|") + command;
  return text(R"(# Completion of trireme for bash:  source <(trireme completion)
_trireme() {
  local current=${COMP_WORDS[COMP_CWORD]} path='' words='' word
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$word" in
      -*) ;;
      *) case " )",
              names_of(app), R"( " in *" $word "*) path="${path:+$path }$word" ;; esac ;;
    esac
  done
  case "$path" in
)",
              cases, R"(  esac
  case "$path" in
    )",
              commands, ") [[ $current == --*.* || $current == -- || $current == -?* ]] && words+='", keys, R"(' ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [[ $current == -* ]] || COMPREPLY+=($(compgen -f -- "$current"))
}
complete -o filenames -F _trireme trireme
)");
}

}  // namespace trireme::cli
