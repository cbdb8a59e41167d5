#pragma once
// Random texts and trained tokenizers for tests.
#include <algorithm>
#include <string>
#include <vector>

#include "trireme/base/philox.hpp"
#include "trireme/data/tokenizer/bpe_train.hpp"
#include "trireme/data/tokenizer/tokenizer_parts.hpp"
#include "trireme/data/tokenizer/unicode.hpp"

namespace trireme {

/// Random text: runs of letters, digits, spaces and line breaks of many kinds, combining marks, arbitrary code points,
/// and occasionally an invalid byte.
inline std::string random_text(std::uint64_t number, bool broken_bytes = true) {
  const RandomStream dice(11, "random text");
  std::uint64_t at = number * 4096;
  const auto below = [&](std::uint64_t n) { return dice.below(at++, n); };
  const auto pick = [&](std::initializer_list<const char*> list) {
    return std::string(*(list.begin() + below(list.size())));
  };
  std::string out;
  for (std::uint64_t pieces = below(14); pieces > 0; --pieces) {
    const std::uint64_t repeat = 1 + below(4) * below(4);
    switch (below(9)) {
      case 0: out.append(repeat, static_cast<char>('a' + below(26))); break;
      case 1: out.append(repeat, static_cast<char>('A' + below(26))); break;
      case 2: out.append(repeat, static_cast<char>('0' + below(10))); break;
      case 3:
        out += pick({" ", "  ", "\n", "\r\n", "\t", "   ", "\u00A0", "\u2028", "\u0085", "\u180E", "\u3000"});
        break;
      case 4: out += pick({"'s", "'S", "'ll", "'Ve", "'re", "'\u017F", "'x", "'", "\u2019t", "'d", "'M", "' "}); break;
      case 5:
        out += pick({".", "!!", "_", "-", "(", "=====", "\u00E9", "e\u0301", "\u4E2D\u6587", "\U0001F600",
                     "\u0661\u0662", "\u00BD"});
        break;
      case 6: data::append_utf8(out, static_cast<char32_t>(below(0xD800))); break;
      case 7: data::append_utf8(out, static_cast<char32_t>(0xE000 + below(0x110000 - 0xE000))); break;
      default:
        if (broken_bytes && below(4) == 0)
          out += static_cast<char>(0x80 + below(128));
        else
          out += pick({" the", " word", "word", " 12", "x"});
    }
  }
  return out;
}

/// Whether there is a character that was assigned in Unicode 15: our tables (utf8proc 2.8) know it, PCRE2 10.42 does
/// not.
inline bool is_newer_than_pcre2(const std::string& text) {
  static const data::Pattern unassigned(R"(\p{Cn})");
  return std::ranges::any_of(unassigned.split(text), &data::Span::matched);
}

inline const std::string& training_text() {
  static const std::string text_ = [] {
    std::string out;
    for (std::uint64_t i = 0; i < 400; ++i)
      out += random_text(i, false) + " the word of the world, the words are there'll 2024 ";
    return out;
  }();
  return text_;
}

/// A tokenizer.json, trained by this library.
inline std::string trained_json(data::KnownPattern pattern = data::KnownPattern::llama3,
                                std::int64_t vocab_size = 500) {
  data::WordCounts counts;
  data::count_words(training_text(), pattern, counts);
  return data::tokenizer_json(data::train_bpe(counts, {.vocab_size = vocab_size, .pattern = pattern}));
}

inline data::Tokenizer tokenizer_of(const std::string& json) {
  return data::Tokenizer(data::parts_of_tokenizer_json_text(json, "x.json"));
}

}  // namespace trireme
