#include "trireme/config/import/megatron_script.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"
#include "trireme/config/settings/convert.hpp"
#include "trireme/config/settings/toml_file.hpp"

namespace trireme::config {
namespace {

struct Word {
  std::string text;
  int line;
  bool ends_command = false;  // then it has no text
};

bool is_name_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

bool is_name(const std::string& word) {
  return !word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) == 0 &&
         std::ranges::all_of(word, is_name_letter);
}

/// Whether any word of a text is a flag.
bool holds_flags(const std::string& text) {
  for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 1))
    if (at == 0 || std::isspace(static_cast<unsigned char>(text[at - 1])) != 0) return true;
  return false;
}

bool is_all_digits(const std::string& word) { return word.find_first_not_of("0123456789") == std::string::npos; }

/// Splits a script into words like a shell, without expansion.
class Splitter {
 public:
  Splitter(const std::string& script, int first_line) : script_(script), line_(first_line) {}

  std::vector<Word> run() && {
    while (at_ < script_.size()) step();
    finish();
    return std::move(words_);
  }

 private:
  char now() const { return at_ < script_.size() ? script_[at_] : '\0'; }
  char next() const { return at_ + 1 < script_.size() ? script_[at_ + 1] : '\0'; }

  void step() {
    const char c = now();
    if (c == '\\' && next() == '\n') {
      finish();
      skip(2);
    } else if (c == '\\') {
      skip(1);
      keep();
    } else if (c == '"' || c == '\'') {
      quoted(c);
    } else if (c == '$' && next() == '(') {
      substitution();
    } else if (c == '#' && !in_word_) {
      at_ = std::min(script_.find('\n', at_), script_.size());
    } else if (c == '\n' && arrays_ > 0) {
      finish();
      skip(1);
    } else if (c == '<' || c == '>') {
      if (is_all_digits(word_)) in_word_ = false;  // the 2 of 2>&1
      end_command();
    } else if (c == '\n' || c == ';' || c == '|' || c == '&' || c == '(' || c == ')') {
      arrays_ = std::max(0, arrays_ + (c == '(') - (c == ')'));
      end_command();
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      finish();
      skip(1);
    } else {
      keep();
    }
  }

  /// "..." and '...' become part of the word; of the backslashes in "..." only one before a line end matters here.
  void quoted(char quote) {
    begin_word();
    skip(1);
    while (at_ < script_.size() && now() != quote) {
      if (quote == '"' && now() == '\\' && next() == '"') skip(1);
      keep();
    }
    skip(1);
  }

  /// $(...) unchanged.
  void substitution() {
    int depth = 0;
    do {
      depth += (now() == '(') - (now() == ')');
      keep();
    } while (at_ < script_.size() && (depth > 0 || script_[at_ - 1] == '$'));
  }

  void begin_word() {
    if (!in_word_) line_of_word_ = line_;
    in_word_ = true;
  }
  void keep() {
    begin_word();
    if (at_ < script_.size()) word_ += now();
    skip(1);
  }
  void skip(int characters) {
    for (; characters > 0 && at_ < script_.size(); --characters) line_ += script_[at_++] == '\n';
  }
  void finish() {
    if (in_word_) words_.push_back({word_, line_of_word_});
    word_.clear();
    in_word_ = false;
  }
  void end_command() {
    finish();
    words_.push_back({"", line_, true});
    skip(1);
  }

  const std::string& script_;
  std::size_t at_ = 0;
  int line_;
  int line_of_word_ = 0;
  int arrays_ = 0;  // open parentheses: inside, line ends separate words, not commands
  bool in_word_ = false;
  std::string word_;
  std::vector<Word> words_;
};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  void read(const std::string& script, int first_line = 1) {
    open_ = false;
    for (const Word& word : Splitter(script, first_line).run()) read(word);
    open_ = false;
  }

  Settings take() && { return std::move(settings_); }

 private:
  void read(const Word& word) {
    if (word.text.starts_with("--") && word.text.size() > 2) {
      const std::size_t equals = word.text.find('=');
      add_setting(file_, settings_, {word.text.substr(0, equals), {RawText{""}}, {file_, word.line, 0, ""}});
      if (equals != std::string::npos) append(word.text.substr(equals + 1));
      open_ = equals == std::string::npos;
    } else if (word.ends_command || remember(word) || is_flags(word.text)) {
      open_ = false;
    } else if (open_) {
      append(word.text);
    }
  }

  void append(const std::string& word) {
    std::string& value = std::get<RawText>(settings_.back().value.data).text;
    value += (value.empty() ? "" : " ") + expand(word);
    require<ConfigError>(value.size() <= kMaxConfigBytes, file_, ":", settings_.back().place.line, ": the value of ",
                         shortened(settings_.back().path), " is larger than ", kMaxConfigBytes, " bytes");
  }

  /// If the word is NAME=value, stores it. A value that contains flags is parsed in place.
  bool remember(const Word& word) {
    const std::size_t equals = word.text.find('=');
    if (equals == std::string::npos) return false;
    std::string name = word.text.substr(0, equals);
    if (name.ends_with('+')) name.pop_back();  // ARGS+=(...)
    if (!is_name(name)) return false;
    const std::string value = word.text.substr(equals + 1);
    if (holds_flags(value)) {
      flags_.insert(name);
      read(value, word.line);  // terminates: each recursion removes one level of quotes
    } else {
      values_[name] = expand(value);
      require<ConfigError>(values_[name].size() <= kMaxConfigBytes, file_, ":", word.line, ": ", shortened(name),
                           " is larger than ", kMaxConfigBytes, " bytes");
    }
    return true;
  }

  /// $ARGS, ${ARGS} or ${ARGS[@]}, whose flags are defined elsewhere in the script.
  bool is_flags(const std::string& word) const {
    if (!word.starts_with('$')) return false;
    const bool braces = word.starts_with("${") && word.ends_with('}');
    const std::string name = braces ? word.substr(2, word.size() - 3) : word.substr(1);
    return name.ends_with("[@]") || name.ends_with("[*]") || flags_.contains(name);
  }

  std::string expand(const std::string& word) const {
    std::string out;
    for (std::size_t i = 0; i < word.size();) {
      std::size_t end = i + 1;
      if (word[i] != '$') {
        out += word[i];
      } else if (end < word.size() && word[end] == '{') {
        end = std::min(word.find('}', i), word.size() - 1) + 1;
        out += in_braces(word.substr(i, end - i));
      } else {
        while (end < word.size() && is_name_letter(word[end])) ++end;
        out += value_or(word.substr(i + 1, end - i - 1), word.substr(i, end - i));
      }
      i = end;
      if (out.size() > kMaxConfigBytes) break;  // the caller rejects it
    }
    return out;
  }

  /// ${NAME} or ${NAME:-other}; unchanged if it is anything else.
  std::string in_braces(const std::string& whole) const {
    const std::string inside = whole.substr(2, whole.size() - 3);
    const std::size_t dash = inside.find(":-");
    return value_or(inside.substr(0, dash), dash == std::string::npos ? whole : inside.substr(dash + 2));
  }

  std::string value_or(const std::string& name, const std::string& other) const {
    const auto value = values_.find(name);
    return value == values_.end() || value->second.find('$') != std::string::npos ? other : value->second;
  }

  std::string file_;
  Settings settings_;
  std::map<std::string, std::string> values_;
  std::set<std::string> flags_;  // variables that hold flags
  bool open_ = false;            // the last flag still accepts values
};

}  // namespace

Settings parse_megatron_script(const std::string& file, const std::string& script) {
  require<ConfigError>(script.size() <= kMaxConfigBytes, file, " is larger than ", kMaxConfigBytes,
                       " bytes: this is not a config");
  require<ConfigError>(valid_utf8(script) == script && script.find('\0') == std::string::npos, file,
                       " is not a text in UTF-8");
  Reader reader(file);
  reader.read(script);
  return std::move(reader).take();
}

bool needs_shell(const Setting& setting) { return plain_text(setting.value).find_first_of("$`") != std::string::npos; }

}  // namespace trireme::config
