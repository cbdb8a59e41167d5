// Reads and writes token files, for token_files_agree.py to compare with its own. Requests on standard input, separated
// by tabs:
//   dump PATH [DOCUMENT_END]                                  prints the data set
//   write FORMAT PATH VOCAB_SIZE NAME FINGERPRINT MASKED      writes one from the lines that follow
// A data set has one line per document with its ids, and, if it is masked, "/" and as many 0 or 1. The output of dump
// begins with a line "TOKENS DOCUMENTS FINGERPRINT NAME" ("-" for an empty word) and omits empty documents. An error is
// "refused: <text, line ends as |>". Data sets and answers end with a line ".". One process handles all requests: with
// a sanitizer a start takes seconds.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/data/tokens/open_tokens.hpp"
#include "trireme/data/tokens/token_writer.hpp"

namespace {

using namespace trireme;

std::string word(const std::string& text) { return text.empty() ? "-" : text; }

void dump(const data::TokenSource& source) {
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

void write(data::TokenWriter& writer) {
  for (std::string line; std::getline(std::cin, line) && line != ".";) {
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

void answer(const std::vector<std::string>& words) {
  if (words[0] == "dump" && words.size() >= 2) {
    data::OpenTokensOptions options;
    if (words.size() == 3) options.document_end = static_cast<std::uint32_t>(std::stoul(words[2]));
    return dump(*open_tokens(words[1], options));
  }
  const auto format = words.size() == 7 ? data::token_format(words[1]) : std::nullopt;
  require<ConfigError>(words[0] == "write" && format, "what is ", words[0], "?");
  write(*write_tokens(
      *format, words[2],
      {.vocab_size = std::stoll(words[3]), .tokenizer = {words[4], words[5]}, .loss_mask = words[6] == "1"}));
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::vector<std::string> words;
    for (std::string part; std::getline(in, part, '\t');) words.push_back(part);
    try {
      answer(words);
    } catch (const DataError& error) {
      std::string what = error.what();
      std::ranges::replace(what, '\n', '|');
      std::cout << "refused: " << what << "\n";
    }
    std::cout << "." << std::endl;
  }
  return 0;
}
