#include "trireme/cli/data.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <optional>

#include "trireme/base/file_output.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/data/prepare/corpus_words.hpp"
#include "trireme/data/prepare/prepare.hpp"
#include "trireme/data/tokenizer/chat_of_model.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::string fixed(double value, int digits) {
  std::array<char, 64> out{};
  std::snprintf(out.data(), out.size(), "%.*f", digits, value);
  return out.data();
}

/// "1 document", "12,345 documents"
std::string counted(std::int64_t count, const char* noun) {
  return text(thousands(count), " ", noun, count == 1 ? "" : "s");
}

bool shows_progress(const Console& console, bool quiet) { return console.err_terminal.tty && !quiet; }

data::DocumentOptions document_options(const TextOptions& words) {
  data::DocumentOptions options{.key = words.key, .chat = {}, .skip_bad = words.skip_bad};
  // A new tokenizer gets the tokens of ChatML; choose() replaces it where there is a model.
  if (words.chat)
    options.chat = data::ChatTemplate::load(words.chat_template == "auto" ? "chatml" : words.chat_template);
  return options;
}

data::TextCut cut_of(const TextOptions& words) {
  const auto cut = data::text_cut(words.documents);
  require<ConfigError>(cut.has_value(), "--documents ", files::shown_name(words.documents),
                       "\n  fix: file, lines or blank-line");
  return *cut;
}

data::KnownPattern pattern_of(const std::string& name) {
  const auto pattern = data::pattern_by_name(name);
  require<ConfigError>(pattern.has_value(), "--pattern ", files::shown_name(name), "\n  fix: gpt2, llama3 or qwen2");
  return *pattern;
}

/// With --template auto: that of the tokenizer's model. Returns the line that tells it.
std::string choose_chat(const PrepareCommand& command, const data::Tokenizer& tokenizer, data::DocumentOptions& options,
                        std::ostream& err) {
  if (!options.chat) return "";
  std::string why;
  if (command.text.chat_template == "auto" && command.train_bpe == 0) {
    data::ChosenTemplate chosen = data::choose_template(command.tokenizer, tokenizer);
    if (chosen.is_guess)
      err << "warning: the conversations are written in the template " << chosen.chat.name << ": " << chosen.why
          << "\n  fix: --template " << chosen.chat.name << " if that is meant, or a JSON file\n";
    why = text(", ", chosen.why);
    options.chat = std::move(chosen.chat);
  }
  return text("template     ", options.chat->name, why, "\n");
}

data::TextInputs inputs_of(const TextOptions& words, bool twice) {
  return data::find_inputs(words.inputs, {.include = words.include, .exclude = words.exclude}, twice);
}

data::TrainedBpe trained(const TextOptions& words, const data::TextInputs& inputs, const data::BpeTrainOptions& options,
                         data::CorpusCounts& counts, Console& console) {
  ProgressLine line(console.err, shows_progress(console, words.quiet), console.err_terminal.width, "counting words");
  return data::train_bpe_on_files(
      {.inputs = inputs, .cut = cut_of(words), .documents = document_options(words), .workers = words.workers}, options,
      counts, hooks_of(line));
}

/// Nothing if one file was named and read: that is no news.
void print_files(const data::TextInputs& inputs, std::ostream& out) {
  constexpr std::size_t kNamed = 5;
  if (inputs.skipped.empty() && inputs.files.size() == 1) return;
  out << "files        " << thousands(std::ssize(inputs.files));
  for (std::size_t i = 0; i < std::min(inputs.skipped.size(), kNamed); ++i)
    out << (i > 0 ? ", " : text(" · skipped ", thousands(std::ssize(inputs.skipped)), ": "))
        << inputs.skipped[i].path.string() << " (" << inputs.skipped[i].why << ")";
  if (inputs.skipped.size() > kNamed) out << " and " << inputs.skipped.size() - kNamed << " more";
  out << "\n";
}

std::vector<std::filesystem::path> outputs_of(const data::PrepareOptions& options, bool with_tokenizer) {
  std::vector<std::filesystem::path> outputs = {data::token_file(options, "")};
  if (options.validation > 0) outputs.push_back(data::token_file(options, "-validation"));
  if (options.format == data::TokenFormat::megatron)
    for (std::filesystem::path& each : outputs) each += ".idx";
  if (with_tokenizer) outputs.push_back(data::tokenizer_file(options));
  return outputs;
}

std::string left_out(std::int64_t empty, std::int64_t unanswered, const data::BadLines& bad) {
  std::string out;
  const auto add = [&](std::int64_t count, const std::string& what) {
    if (count > 0) out += (out.empty() ? " · left out: " : ", ") + what;
  };
  add(empty, thousands(empty) + " empty");
  add(unanswered, thousands(unanswered) + " without an answer to learn");
  add(bad.count, text(counted(bad.count, "bad line"), ", the first ", bad.first));
  return out;
}

std::string rate(std::uint64_t bytes, double seconds) {
  return text(human_seconds(seconds), " · ", fixed(static_cast<double>(bytes) / 1e6 / seconds, 1), " MB/s");
}

/// The data set of an earlier `prepare` with --validation: what it holds out may be in the training data now.
void warn_of_old_validation(const data::PrepareOptions& options, std::ostream& err) {
  if (options.validation > 0) return;
  const std::filesystem::path file = data::token_file(options, "-validation");
  for (const char* ending : {"", ".bin"})
    if (const std::filesystem::path old = file.string() + ending; std::filesystem::exists(old)) {
      err << "warning: " << old.string()
          << " is from an earlier prepare and was not written again: its documents may be "
          << "in " << data::token_file(options, "").string() << " too\n  fix: remove it, or give --validation\n";
      return;
    }
}

void warn_of_few_pairs(const data::Tokenizer& tokenizer, std::int64_t wanted, std::ostream& err) {
  if (tokenizer.vocab_size() < wanted)
    err << "warning: the text has only enough pairs for " << thousands(tokenizer.vocab_size()) << " of "
        << thousands(wanted) << " tokens\n";
}

void prepare_now(const PrepareCommand& command, Console& console) {
  require<ConfigError>(command.tokenizer.empty() != (command.train_bpe == 0), "data prepare needs a tokenizer",
                       command.tokenizer.empty() ? "" : ", and only one",
                       "\n  fix: -t tokenizer.json, or --train-bpe N to make one from these texts");
  const auto begin = Clock::now();
  data::PrepareOptions options{.inputs = {},
                               .cut = cut_of(command.text),
                               .documents = document_options(command.text),
                               .out = command.output,
                               .format = format_of(command.format),
                               .append_end = command.append_eod,
                               .tokenizer_name = command.tokenizer_name,
                               .tokenizer_json = {},
                               .workers = command.text.workers,
                               .shuffle = command.shuffle,
                               .seed = command.seed,
                               .validation = command.validation};
  check_overwrite(outputs_of(options, command.train_bpe != 0), command.overwrite);
  options.inputs = inputs_of(command.text, command.train_bpe != 0);
  std::optional<data::Tokenizer> tokenizer;
  if (command.train_bpe == 0) {
    tokenizer = data::Tokenizer::load(command.tokenizer);
  } else {
    data::BpeTrainOptions training{.vocab_size = command.train_bpe, .pattern = pattern_of(command.pattern)};
    // The tokens used in the template must exist and be special.
    if (options.documents.chat)
      for (const std::string& token : options.documents.chat->special) training.special_tokens.push_back(token);
    data::CorpusCounts counts;
    options.tokenizer_json = data::tokenizer_json(trained(command.text, options.inputs, training, counts, console));
    tokenizer = data::Tokenizer::from_json(options.tokenizer_json, data::tokenizer_file(options).string());
  }
  const std::string template_line = choose_chat(command, *tokenizer, options.documents, console.err);
  const double trained_after = seconds_since(begin);
  data::Prepared made;
  {
    ProgressLine line(console.err, shows_progress(console, command.text.quiet), console.err_terminal.width,
                      "tokenizing");
    made = data::prepare(options, *tokenizer, hooks_of(line));
  }
  const double seconds = seconds_since(begin) - trained_after;
  print_files(options.inputs, console.out);
  console.out << "documents    " << thousands(made.documents) << left_out(made.empty, made.unanswered, made.bad) << "\n"
              << "tokens       " << thousands(made.tokens) << " · "
              << fixed(static_cast<double>(made.text_bytes) / static_cast<double>(made.tokens), 2) << " bytes a token\n"
              << "tokenizer    " << tokenizer->name() << " · " << thousands(tokenizer->vocab_size())
              << " tokens · fingerprint " << tokenizer->fingerprint() << "\n"
              << template_line << "time         " << rate(made.read_bytes, seconds);
  if (command.train_bpe > 0) console.out << ", after " << human_seconds(trained_after) << " of training the tokenizer";
  console.out << "\n";
  for (const data::WrittenSet& set : made.sets)
    console.out << (&set == &made.sets.front() ? "written      " : "             ") << set.path.string() << " · "
                << counted(set.documents, "document") << " · " << counted(set.tokens, "token") << "\n";
  if (command.train_bpe > 0) warn_of_few_pairs(*tokenizer, command.train_bpe, console.err);
  if (made.not_utf8 > 0)
    console.err << "warning: " << thousands(made.not_utf8) << " of " << counted(made.documents, "document")
                << (made.not_utf8 == 1 ? " is" : " are")
                << " not UTF-8: invalid bytes become single-byte tokens, or U+FFFD"
                << "\n  fix: convert the text, for instance with iconv -f latin1 -t utf-8\n";
  warn_of_old_validation(options, console.err);
}

void train_bpe_now(const TrainBpeCommand& command, Console& console) {
  const auto begin = Clock::now();
  data::BpeTrainOptions options{.vocab_size = command.vocab_size,
                                .pattern = pattern_of(command.pattern),
                                .special_tokens = command.special,
                                .min_frequency = command.min_frequency};
  if (options.special_tokens.empty()) options.special_tokens = data::BpeTrainOptions{}.special_tokens;
  check_overwrite({command.output}, command.overwrite);
  const data::TextInputs inputs = inputs_of(command.text, false);
  data::CorpusCounts counts;
  const std::string json = data::tokenizer_json(trained(command.text, inputs, options, counts, console));
  const data::Tokenizer tokenizer = data::Tokenizer::from_json(json, command.output);
  if (StopSignals::received() != 0) throw Interrupted("interrupted; nothing was written");
  replace_file(command.output, json);
  print_files(inputs, console.out);
  console.out << "documents    " << thousands(counts.documents) << left_out(0, 0, counts.bad) << "\n"
              << "time         " << rate(counts.read_bytes, seconds_since(begin)) << "\n"
              << "written      " << command.output << " · " << thousands(tokenizer.vocab_size())
              << " tokens · fingerprint " << tokenizer.fingerprint() << "\n";
  warn_of_few_pairs(tokenizer, command.vocab_size, console.err);
}

}  // namespace

data::DataHooks hooks_of(ProgressLine& line) {
  return {.progress = [&line](const data::DataProgress& progress) { line.show(progress); },
          .stopped = [] { return StopSignals::received() != 0; }};
}

data::TokenFormat format_of(const std::string& name) {
  const auto format = data::token_format(name);
  require<ConfigError>(format.has_value(), "--format ", files::shown_name(name),
                       "\n  fix: datatrove, megatron or llmc");
  return *format;
}

void check_overwrite(const std::vector<std::filesystem::path>& outputs, bool overwrite) {
  for (const std::filesystem::path& file : outputs)
    require<ConfigError>(overwrite || !std::filesystem::exists(file), file.string(), " exists",
                         "\n  fix: another -o, or --overwrite to replace it");
}

int until_stopped(Console& console, const std::function<void()>& work) {
  const StopSignals signals(StopSignals::Then::note);
  try {
    work();
    return static_cast<int>(ExitCode::done);
  } catch (const Interrupted& interrupted) {
    const int signal = StopSignals::received();
    console.err << "error: " << interrupted.what() << " (signal " << signal << ")\n";
    return static_cast<int>(stop_code(signal));
  }
}

int run_data_prepare(const PrepareCommand& command, Console& console) {
  return until_stopped(console, [&] { prepare_now(command, console); });
}

int run_data_train_bpe(const TrainBpeCommand& command, Console& console) {
  return until_stopped(console, [&] { train_bpe_now(command, console); });
}

}  // namespace trireme::cli
