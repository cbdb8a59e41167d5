// Reads and writes token files, for token_files_agree.py to compare with its own.
//   usage: token_files_tool dump PATH [DOCUMENT_END]                       prints the data set
//          token_files_tool write FORMAT PATH VOCAB_SIZE NAME FINGERPRINT MASKED   makes one of standard input
// A data set is text: a line for each document with its ids, and, when it is masked, "/" and as many 0 or 1. What dump prints
// begins with a line "TOKENS DOCUMENTS FINGERPRINT NAME" ("-" for an empty word) and has no documents without tokens.
// Refusals: "refused: <text, line ends as |>" and exit status 65.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/open_tokens.hpp"
#include "trireme/data/token_writer.hpp"

namespace {

using namespace trireme;

std::string word(const std::string& text) { return text.empty() ? "-" : text; }

void dump(const TokenSource& source) {
  std::cout << source.num_tokens() << " " << source.num_documents() << " " << word(source.tokenizer_fingerprint())
            << " " << word(source.tokenizer_name()) << "\n";
  std::int64_t begin = 0;
  for (const std::int64_t end : source.document_ends(0, source.num_tokens())) {
    std::vector<std::uint32_t> ids(static_cast<std::size_t>(end - begin));
    std::vector<std::uint8_t> mask(ids.size());
    source.read(begin, ids);
    source.read_loss_mask(begin, mask);
    const char* gap = "";
    for (const std::uint32_t id : ids) std::cout << std::exchange(gap, " ") << id;
    if (source.has_loss_mask()) {
      std::cout << " /";
      for (const std::uint8_t bit : mask) std::cout << " " << int{bit};
    }
    std::cout << "\n";
    begin = end;
  }
}

void write(TokenWriter& writer) {
  for (std::string line; std::getline(std::cin, line);) {
    const std::size_t bar = std::min(line.find('/'), line.size());
    std::istringstream numbers(line.substr(0, bar)), bits(line.substr(std::min(bar + 1, line.size())));
    std::vector<std::uint32_t> ids;
    std::vector<std::uint8_t> mask;
    for (std::uint32_t id; numbers >> id;) ids.push_back(id);
    for (int bit; bits >> bit;) mask.push_back(static_cast<std::uint8_t>(bit));
    writer.append(ids, mask);
  }
  writer.finish();
}

int run(const std::vector<std::string>& words) {
  if (words.size() >= 2 && words[0] == "dump") {
    OpenTokensOptions options;
    if (words.size() == 3) options.document_end = static_cast<std::uint32_t>(std::stoul(words[2]));
    dump(*open_tokens(words[1], options));
    return 0;
  }
  if (words.size() == 7 && words[0] == "write") {
    const auto format = token_format(words[1]);
    require<ConfigError>(format.has_value(), "format ", words[1]);
    write(*write_tokens(
        *format, words[2],
        {.vocab_size = std::stoll(words[3]), .tokenizer = {words[4], words[5]}, .loss_mask = words[6] == "1"}));
    return 0;
  }
  std::cerr
      << "usage: token_files_tool dump PATH [DOCUMENT_END] | write FORMAT PATH VOCAB_SIZE NAME FINGERPRINT MASKED\n";
  return 64;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const Error& error) {
    std::string what = error.what();
    std::ranges::replace(what, '\n', '|');
    std::cout << "refused: " << what << "\n";
    return static_cast<int>(error.exit_code());
  }
}
