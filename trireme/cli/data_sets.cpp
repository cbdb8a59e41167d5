// `trireme data inspect` and `trireme data merge`.
#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "trireme/base/human.hpp"
#include "trireme/base/table.hpp"
#include "trireme/cli/data.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"
#include "trireme/data/tokens/inspect.hpp"
#include "trireme/data/tokens/merge.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/files/shown_name.hpp"

namespace trireme::cli {
namespace {

constexpr std::int64_t kShownTokens = 256;

std::string tokenizer_line(const data::TokenSource& source, const std::optional<data::Tokenizer>& tokenizer) {
  const std::string name = source.tokenizer_name(), made_by = source.tokenizer_fingerprint();
  std::string line = text(name.empty() ? "not named" : files::shown_name(name), " · fingerprint ",
                          made_by.empty() ? "not known" : made_by);
  if (tokenizer && !made_by.empty())
    line += text(made_by == tokenizer->fingerprint() ? " · the same as " : " · NOT that of ", tokenizer->name(),
                 made_by == tokenizer->fingerprint() ? "" : text(", which is ", tokenizer->fingerprint()));
  return line;
}

/// One bar per power of two between the shortest and the longest document.
std::string histogram(const data::TokenReport& report) {
  constexpr double kWidth = 40;
  const auto& lengths = report.lengths;
  const auto used = [](std::int64_t count) { return count > 0; };
  const auto first = std::ranges::find_if(lengths, used);
  const auto last = std::find_if(lengths.rbegin(), lengths.rend(), used).base();
  const std::int64_t most = std::ranges::max(lengths);
  std::vector<TableRow> rows;
  for (auto at = first; at < last; ++at) {
    const std::int64_t low = std::int64_t{1} << (at - lengths.begin());
    const auto bar = static_cast<std::size_t>(std::ceil(kWidth * static_cast<double>(*at) / static_cast<double>(most)));
    rows.push_back({thousands(low), thousands(2 * low - 1), thousands(*at), std::string(bar, '#')});
  }
  return table({"from", "to", "documents", ""}, rows);
}

/// Calls f(first, count, counts) for each run of tokens with the same loss mask.
template <class F>
void each_run(const data::ShownDocument& document, const F& f) {
  const auto counts = [&](std::size_t i) { return document.loss_mask.empty() || document.loss_mask[i] != 0; };
  for (std::size_t first = 0, next = 0; first < document.ids.size(); first = next) {
    next = first + 1;
    while (next < document.ids.size() && counts(next) == counts(first)) ++next;
    f(first, next - first, counts(first));
  }
}

/// The text as it is, behind a margin; with a loss mask the margin tells what counts.
std::string with_margin(const data::ShownDocument& document, const data::Tokenizer& tokenizer) {
  std::string out;
  each_run(document, [&](std::size_t first, std::size_t count, bool counts) {
    const std::string words = files::shown_text(tokenizer.decode(std::span(document.ids).subspan(first, count)));
    const char* margin = counts && !document.loss_mask.empty() ? "  > " : "  | ";
    for (std::size_t begin = 0, end = 0; begin < words.size(); begin = end + 1) {
      end = std::min(words.find('\n', begin), words.size());
      out += text(margin, words.substr(begin, end - begin), "\n");
    }
  });
  return out;
}

std::string shown_document(const data::ShownDocument& document, const std::optional<data::Tokenizer>& tokenizer) {
  const char* more = document.num_tokens > std::ssize(document.ids) ? "  ...\n" : "";
  if (tokenizer && std::ranges::all_of(document.ids, [&](std::uint32_t id) { return id < tokenizer->vocab_size(); }))
    return with_margin(document, *tokenizer) + more;
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(document.ids.size(), 20); ++i)
    out += text(i ? " " : "  ", document.ids[i]);
  return out + (document.num_tokens > 20 ? " ...\n" : "\n");
}

/// The tokenizer that the data set names, where it is still there and the same: by its path, or beside the data.
std::optional<data::Tokenizer> recorded_tokenizer(const data::TokenSource& source, const std::filesystem::path& path) {
  const std::string name = source.tokenizer_name(), made_by = source.tokenizer_fingerprint();
  if (name.empty() || made_by.empty()) return std::nullopt;
  for (const std::filesystem::path& place :
       {std::filesystem::path(name), path.parent_path() / std::filesystem::path(name).filename()})
    try {
      data::Tokenizer found = data::Tokenizer::load(place);
      if (found.fingerprint() == made_by) return found;
    } catch (const Error&) {  // moved, or of another machine
    }
  return std::nullopt;
}

void inspect_now(const InspectCommand& command, Console& console) {
  require<ConfigError>(command.documents >= 0, "-n ", command.documents, ": must be at least 0");
  std::optional<data::Tokenizer> tokenizer;
  if (!command.tokenizer.empty()) tokenizer = data::Tokenizer::load(command.tokenizer);
  const auto source =
      data::open_tokens(command.path, {.document_end = tokenizer ? tokenizer->end_of_document() : std::nullopt});
  if (!tokenizer) tokenizer = recorded_tokenizer(*source, command.path);
  data::TokenReport report;
  {
    ProgressLine line(console.err, console.err_terminal.tty, console.err_terminal.width, "reading");
    report = data::inspect_tokens(*source, hooks_of(line));
  }
  const data::TokenStorage storage = source->storage();
  const double mean = static_cast<double>(source->num_tokens()) / static_cast<double>(report.num_documents);
  console.out << "format       " << storage.format << " · tokens of " << storage.token_bytes << " bytes ("
              << storage.numbers << ")\n"
              << "documents    " << thousands(source->num_documents()) << "\n"
              << "tokens       " << thousands(source->num_tokens()) << " · ids " << thousands(report.min_id) << " to "
              << thousands(report.max_id) << "\n"
              << "tokenizer    " << tokenizer_line(*source, tokenizer) << "\n";
  if (source->has_loss_mask())
    console.out << "loss mask    " << thousands(report.counting_tokens) << " tokens count, "
                << human_number(std::round(1000.0 * static_cast<double>(report.counting_tokens) /
                                           static_cast<double>(source->num_tokens())) /
                                10)
                << "%\n";
  console.out << "lengths      " << thousands(report.shortest) << " to " << thousands(report.longest) << ", on average "
              << human_count(mean) << " tokens\n\n"
              << histogram(report);
  std::int64_t number = 0;
  for (const data::ShownDocument& document : data::first_documents(*source, command.documents, kShownTokens))
    console.out << "\ndocument " << number++ << " · " << thousands(document.num_tokens)
                << (document.num_tokens == 1 ? " token" : " tokens")
                << (tokenizer && !document.loss_mask.empty() ? " · lines with > count in the loss\n" : "\n")
                << shown_document(document, tokenizer);
}

void merge_now(const MergeCommand& command, Console& console) {
  const data::TokenFormat format = format_of(command.format);
  data::MergeOptions options{
      .inputs = command.inputs, .out = command.output, .format = format, .document_end = {}, .force = command.force};
  if (format == data::TokenFormat::datatrove && options.out.extension() != ".ds") options.out += ".ds";
  std::filesystem::path file = options.out;
  if (format != data::TokenFormat::datatrove) {
    if (file.extension() == ".idx" || file.extension() == ".bin") file.replace_extension();
    file += format == data::TokenFormat::megatron ? ".idx" : ".bin";
  }
  check_overwrite({file}, command.overwrite);
  if (!command.tokenizer.empty()) options.document_end = data::Tokenizer::load(command.tokenizer).end_of_document();
  data::Merged merged;
  {
    ProgressLine line(console.err, console.err_terminal.tty && !command.quiet, console.err_terminal.width, "joining");
    merged = data::merge_tokens(options, hooks_of(line));
  }
  const std::string& fingerprint = merged.tokenizer.fingerprint;
  console.out << "documents    " << thousands(merged.documents) << "\n"
              << "tokens       " << thousands(merged.tokens) << "\n"
              << "tokenizer    "
              << (merged.tokenizer.name.empty() ? "not named" : files::shown_name(merged.tokenizer.name))
              << " · fingerprint " << (fingerprint.empty() ? "not known" : fingerprint) << "\n"
              << "written      " << options.out.string() << "\n";
}

}  // namespace

int run_data_inspect(const InspectCommand& command, Console& console) {
  return until_stopped(console, [&] { inspect_now(command, console); });
}

int run_data_merge(const MergeCommand& command, Console& console) {
  return until_stopped(console, [&] { merge_now(command, console); });
}

}  // namespace trireme::cli
