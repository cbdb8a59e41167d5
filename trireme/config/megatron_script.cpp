#include "trireme/config/megatron_script.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

struct Word {
  std::string text;
  int line;
};

bool is_name(const std::string& word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
         std::ranges::all_of(word, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// As a shell splits them, without expanding anything; parentheses and semicolons only separate.
std::vector<Word> split_words(const std::string& script) {
  std::vector<Word> words;
  std::string word;
  int line = 1;
  bool in_word = false;
  const auto finish = [&] {
    if (in_word) words.push_back({std::exchange(word, ""), line});
    in_word = false;
  };
  for (std::size_t i = 0; i < script.size(); ++i) {
    const char c = script[i];
    if (c == '\\' && i + 1 < script.size()) {
      if (script[++i] == '\n') {
        finish();
        ++line;
      } else {
        word += script[i];
        in_word = true;
      }
    } else if (c == '"' || c == '\'') {
      in_word = true;
      for (++i; i < script.size() && script[i] != c; ++i) {
        line += script[i] == '\n';
        word += script[i];
      }
    } else if (c == '#' && !in_word) {
      i = std::min(script.find('\n', i), script.size()) - 1;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == '(' || c == ')' || c == ';') {
      finish();
      line += c == '\n';
    } else {
      word += c;
      in_word = true;
    }
  }
  finish();
  return words;
}

class Expander {
 public:
  explicit Expander(const std::string& file) : file_(file) {}

  /// Whether the word is NAME=value, which is then remembered.
  bool remember(const Word& word) {
    const std::size_t equals = word.text.find('=');
    if (equals == std::string::npos || !is_name(word.text.substr(0, equals))) return false;
    values_[word.text.substr(0, equals)] = word.text.substr(equals + 1);
    return true;
  }

  std::string expand(const Word& word) const {
    std::string out;
    for (std::size_t i = 0; i < word.text.size(); ++i) {
      if (word.text[i] != '$') {
        out += word.text[i];
        continue;
      }
      const bool braces = i + 1 < word.text.size() && word.text[i + 1] == '{';
      const std::size_t begin = i + (braces ? 2 : 1);
      std::size_t end = begin;
      while (end < word.text.size() &&
             (std::isalnum(static_cast<unsigned char>(word.text[end])) != 0 || word.text[end] == '_'))
        ++end;
      const std::string name = word.text.substr(begin, end - begin);
      const auto value = values_.find(name);
      require<ConfigError>(value != values_.end() && value->second.find('$') == std::string::npos,
                           "the script's variable ", word.text, " has no plain value\n  --> ", file_, ":", word.line,
                           "\n  fix: write the value in its place");
      out += value->second;
      i = braces ? end : end - 1;
    }
    return out;
  }

 private:
  std::string file_;
  std::map<std::string, std::string> values_;
};

}  // namespace

Settings parse_megatron_script(const std::string& file, const std::string& script) {
  const std::vector<Word> words = split_words(script);
  Expander variables(file);
  Settings settings;
  bool open = false;  // the last flag still takes words
  for (const Word& word : words) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const std::size_t equals = word.text.find('=');
      settings.push_back({word.text.substr(0, equals), {RawText{""}}, {file, word.line, 0, ""}});
      if (equals != std::string::npos)
        settings.back().value = {RawText{variables.expand({word.text.substr(equals + 1), word.line})}};
      open = equals == std::string::npos;
    } else if (variables.remember(word) || !open) {
      open = false;
    } else if (word.text.starts_with("${") && word.text.ends_with("[@]}")) {
      open = false;  // an array of flags, whose words stand elsewhere in the script
    } else {
      std::string& value = std::get<RawText>(settings.back().value.data).text;
      value += (value.empty() ? "" : " ") + variables.expand(word);
    }
  }
  return settings;
}

}  // namespace trireme
