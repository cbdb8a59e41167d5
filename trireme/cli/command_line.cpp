#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <sstream>

#include <CLI/CLI.hpp>

#include "trireme/base/process_limits.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/cli/build_facts.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/command_choice.hpp"
#include "trireme/cli/completion.hpp"
#include "trireme/cli/data.hpp"
#include "trireme/config/read/flags.hpp"
#include "trireme/config/settings/nearest.hpp"

namespace trireme::cli {
namespace {

void add_schedule(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<ScheduleOptions>();
  CLI::App* cmd = app.add_subcommand("schedule", "Draw a pipeline schedule, check it, and show its cost");
  CLI::Option* name = cmd->add_option("name", options->name, "afab, 1f1b, interleaved-1f1b, zb1p, zbv or dualpipe-v");
  cmd->add_option("--file", options->file, "instead of a name: a schedule file, in the format of --text")
      ->excludes(name);
  cmd->add_option("--stages", options->stages, "pipeline ranks")->capture_default_str();
  cmd->add_option("--microbatches", options->microbatches, "microbatches per step")->capture_default_str();
  cmd->add_option("--virtual-stages", options->virtual_stages, "chunks per rank, for interleaved-1f1b; default: 2");
  cmd->add_option("--forward", options->costs.F, "time of a stage's forward")->capture_default_str();
  cmd->add_option("--input-grad", options->costs.I, "time of its input gradient")->capture_default_str();
  cmd->add_option("--weight-grad", options->costs.W, "time of its weight gradient")->capture_default_str();
  cmd->add_option("--transfer", options->costs.transfer, "time from one rank to the next")->capture_default_str();
  cmd->add_option("--svg", options->svg, "write a drawing to this file");
  cmd->add_flag("--text", options->print_text, "print the steps as text, one line per rank");
  cmd->footer(
      "Example:\n  trireme schedule 1f1b --stages 4 --microbatches 8\n  trireme schedule zb1p --text > mine.txt\n"
      "  trireme schedule --file mine.txt");
  cmd->callback([options, &choice] {
    choice.run = [options](Console& console) { return number(run_schedule(*options, console)); };
  });
}

void add_doctor(CLI::App& app, Choice& choice) {
  auto options = std::make_shared<DoctorCommand>();
  CLI::App* cmd = app.add_subcommand("doctor", "Show what this machine and this build can do");
  cmd->add_flag("--json", options->json, "print one JSON object: found and remark by name");
  cmd->add_flag("--quick", options->quick, "skip the all-reduce between ranks, which takes two seconds");
  cmd->footer("Example:\n  trireme doctor");
  cmd->callback([options, &choice] {
    options->words = choice.words.all;
    choice.run = [options](Console& console) { return number(run_doctor(*options, console)); };
  });
}

/// Commands for which --section.key VALUE is a setting.
const std::vector<std::string>& commands_with_settings() {
  static const std::vector<std::string> names{"config", "plan", "train", "verify", "bench"};
  return names;
}

void add_completion(CLI::App& app, Choice& choice) {
  auto shell = std::make_shared<std::string>("bash");
  CLI::App* cmd = app.add_subcommand("completion", "Print a script that completes commands, options, keys and values");
  cmd->add_option("shell", *shell, "bash, zsh or fish")->capture_default_str();
  cmd->footer("Example:\n  source <(trireme completion bash)\n  trireme completion fish | source");
  cmd->callback([shell, &choice] {
    choice.run = [shell](Console& console) {
      console.out << completion_script(*shell, std::filesystem::read_symlink("/proc/self/exe").string());
      return 0;
    };
  });
}

/// The command that `words` name, as far as they do.
const CLI::App& named_command(const CLI::App& app, std::span<const std::string> words) {
  const CLI::App* inner = words.empty() ? nullptr : inner_command(app, words.front());
  return inner == nullptr ? app : named_command(*inner, words.subspan(1));
}

/// "trireme help train" is "trireme train --help".
std::vector<std::string> without_help_word(std::vector<std::string> words) {
  if (words.empty()) return {"--help"};
  if (words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

/// Options stand behind the command.
void check_first_word(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string& word = words.front();
  const std::string option = word.substr(0, word.find('='));
  if (!word.starts_with('-') || app.get_option_no_throw(option) != nullptr) return;
  throw ConfigError(text("unknown option ", config::shortened(word), ": options go after the command",
                         "\n  fix: trireme COMMAND ", config::shortened(word), ", or trireme --help"));
}

/// The number of items that an option takes: 0 for a flag; nullptr is an unknown one.
bool takes_one_value(const CLI::Option* option) { return option != nullptr && option->get_items_expected_max() == 1; }

/// Where the program of `launch` begins: after --, else the first word that is neither an option nor its value.
std::size_t program_begin(const CLI::App& launch, const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--" || !words[i].starts_with('-')) return i;
    if (words[i].find('=') == std::string::npos && takes_one_value(launch.get_option_no_throw(words[i]))) ++i;
  }
  return words.size();
}

/// Takes out options of `command` that are given again later, up to `end`: the last one counts.
std::vector<std::string> without_repeated_options(const CLI::App& command, const std::vector<std::string>& words,
                                                  std::size_t end, std::vector<std::string>& repeated) {
  struct Given {
    std::size_t begin, count;
  };
  std::map<const CLI::Option*, Given> last;
  std::vector<bool> dropped(words.size(), false);
  for (std::size_t i = 0; i < end; ++i) {
    if (!words[i].starts_with('-')) continue;
    const std::size_t equals = words[i].find('=');
    const CLI::Option* option = command.get_option_no_throw(words[i].substr(0, equals));
    if (!takes_one_value(option) || option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll) continue;
    const Given now{i, equals == std::string::npos ? std::size_t{2} : std::size_t{1}};
    if (const auto before = last.find(option); before != last.end()) {
      for (std::size_t k = 0; k < before->second.count; ++k) dropped[before->second.begin + k] = true;
      if (std::ranges::find(repeated, words[i].substr(0, equals)) == repeated.end())
        repeated.push_back(words[i].substr(0, equals));
    }
    last[option] = now;
    i += now.count - 1;
  }
  std::vector<std::string> out;
  for (std::size_t i = 0; i < words.size(); ++i)
    if (!dropped[i]) out.push_back(words[i]);
  return out;
}

/// A better message than CLI11's, which would only say that a command is missing.
/// `above`: the commands that `app` is of, "config ".
void check_command(const CLI::App& app, std::span<const std::string> words, const std::string& above = "") {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
    if (!words.empty() && words.front() == names.back())
      return check_command(*command, words.subspan(1), text(above, names.back(), " "));
  }
  if (names.empty() || words.empty() || words.front().starts_with('-')) return;
  if (!app.get_options([](const CLI::Option* option) { return option->get_positional(); }).empty() &&
      words.front().find_first_of("./") != std::string::npos)
    return;  // its file
  const std::string near = config::nearest(words.front(), names);
  throw ConfigError(text("unknown command '", above, config::shortened(words.front()), "'",
                         near.empty() ? "" : text("; did you mean '", above, near, "'?"), "\n  fix: trireme ", above,
                         "--help lists them"));
}

/// An argument that no command takes: a setting without its section, perhaps.
std::string unexpected(const std::string& what, const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) {
    if (what.find(flag) == std::string::npos) continue;
    std::string settings;
    for (const std::string& setting : config::settings_like(flag))
      settings += (settings.empty() ? "" : " or ") + setting;
    if (!settings.empty())
      return text("unknown flag ", config::shortened(flag), "\n  fix: did you mean ", settings,
                  "? A setting is --section.key VALUE; trireme config show lists them");
  }
  return text(what, "\n  fix: trireme --help, or trireme COMMAND --help");
}

/// Long lines of a help text are broken; what follows stands below the description that it continues.
std::string help_in_width(const std::string& help, int width) {
  constexpr std::size_t kDescriptions = 30;  // CLI11's column
  const auto most = static_cast<std::size_t>(std::max(60, width));
  std::string out, line;
  for (std::istringstream lines(help); std::getline(lines, line); out += "\n") {
    const std::size_t text_begin = line.find_first_not_of(' ');
    const bool described = line.size() > kDescriptions && line.starts_with("  ") && line[kDescriptions - 1] == ' ' &&
                           line[kDescriptions] != ' ';
    const std::string indent(described ? kDescriptions : std::min(text_begin, line.size()), ' ');
    while (display_width(line) > most) {
      std::size_t cut = std::string::npos;
      for (std::size_t at = line.find(' ', indent.size() + 1); at != std::string::npos; at = line.find(' ', at + 1)) {
        if (display_width(line.substr(0, at)) > most) break;
        cut = at;
      }
      if (cut == std::string::npos) break;
      out += line.substr(0, line.find_last_not_of(' ', cut) + 1) + "\n";
      line = indent + line.substr(cut + 1);
    }
    out += line;
  }
  return out;
}

int report(Console& console, const std::string& what, ExitCode code) {
  console.err << "error: " << what << "\n";
  if (code == ExitCode::internal) console.err << "  this is a bug in trireme: please report it\n";
  return number(code);
}

}  // namespace

int run_command_line(int argc, const char* const* argv, Console& console) {
  CLI::App app{"Distributed training for the PyTorch C++ API"};
  app.name("trireme");
  app.set_version_flag("-v,--version", build_facts());
  app.require_subcommand(1);
  app.footer("trireme COMMAND --help shows its options.");
  Choice choice;
  add_schedule(app, choice);
  add_config(app, choice);
  const auto chosen = [&choice](std::function<int(Console&)> run) { choice.run = std::move(run); };
  add_data(app, chosen);
  add_convert(app, choice);
  add_checkpoint(app, chosen);
  add_reshape(app, choice);
  add_plan(app, choice.words, chosen);
  add_train(app, choice);
  add_launch(app, choice);
  add_model_commands(app, choice.words, chosen);
  add_report(app, choice);
  add_bench(app, choice.words, chosen);
  add_doctor(app, choice);
  add_completion(app, choice);

  int code = 0;
  std::vector<std::string> flags;  // of a command that takes settings: what is none of them
  try {
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc), rest, repeated;
    if (words.size() > 2 && words[0] == "completion" && words[1] == "--words") {  // asked by completion_script()
      words.erase(words.begin(), words.begin() + 3);                              // and "--"
      for (const std::string& word : completions(app, commands_with_settings(), words)) console.out << word << "\n";
      return 0;
    }
    words = without_help_word(std::move(words));
    check_first_word(app, words);
    check_command(app, words);
    const bool launches = words.front() == "launch";
    const CLI::App& command = named_command(app, words);
    words = without_repeated_options(command, words, launches ? program_begin(command, words) : words.size(), repeated);
    const bool takes_settings =
        std::ranges::find(commands_with_settings(), words.front()) != commands_with_settings().end();
    if (takes_settings) words = config::without_repeated(words, repeated);
    for (const std::string& flag : repeated)
      console.err << "note: " << config::shortened(flag) << " is given more than once: the last one counts\n";
    // Without what is repeated, so that a program which goes on with these words does not tell it again.
    choice.words.all = words;
    choice.words.all.insert(choice.words.all.begin(), argc > 0 ? argv[0] : "trireme");
    if (takes_settings) {
      choice.words.overrides = config::take_flags(words, rest);
      std::ranges::copy_if(rest, std::back_inserter(flags), [](const std::string& w) { return w.starts_with("--"); });
    } else {
      rest = words;
    }
    if (launches) {  // the rest belongs to the program
      const std::size_t begin = program_begin(command, rest);
      if (begin < rest.size())
        choice.program.assign(rest.begin() + static_cast<std::ptrdiff_t>(begin + (rest[begin] == "--" ? 1 : 0)),
                              rest.end());
      rest.resize(begin);
    }
    std::ranges::reverse(rest);  // CLI11 expects reverse order
    app.parse(std::move(rest));
    code = choice.run(console);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream words;
    app.exit(e, words, words);
    console.out << help_in_width(words.str(), console.terminal.width);
  } catch (const CLI::ExtrasError& e) {
    code = report(console, unexpected(e.what(), flags), ExitCode::config);
  } catch (const CLI::ParseError& e) {
    code = report(console, text(e.what(), "\n  fix: trireme --help, or trireme COMMAND --help"), ExitCode::config);
  } catch (const Error& e) {
    code = report(console, e.what(), e.exit_code());
  } catch (const std::exception& e) {
    const std::optional<LimitReached> limit = limit_behind(e);
    code = limit ? report(console, limit->what, limit->code) : report(console, e.what(), ExitCode::internal);
  }
  console.out.flush();
  // The result of a training is in its folder, and nobody has to read what it prints.
  if (!console.out && code == 0 && !choice.output_is_optional)
    code = report(console, "cannot write to standard output", ExitCode::config);
  return code;
}

}  // namespace trireme::cli
