#include "tools/figures/terminal_screen.hpp"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.hpp"
#include "trireme/base/utf8.hpp"

namespace trireme::figures {
namespace {

/// The parameters of a control sequence, "1;31"; an omitted one is 0.
std::vector<int> parameters(std::string_view words) {
  std::vector<int> out;
  for (std::size_t at = 0; at <= words.size();) {
    const std::size_t end = std::min(words.find(';', at), words.size());
    int value = 0;
    std::from_chars(words.data() + at, words.data() + end, value);
    out.push_back(value);
    at = end + 1;
  }
  return out;
}

void set_look(CellLook& look, const std::vector<int>& codes) {
  for (const int code : codes) {
    if (code == 0) look = {};
    if (code == 1) look.bold = true;
    if (code == 2) look.dim = true;
    if (code == 22) look.bold = look.dim = false;
    if (code >= 30 && code <= 37) look.colour = code - 30;
    if (code == 39) look.colour = -1;
    if (code >= 40 && code <= 47) look.background = code - 40;
    if (code == 49) look.background = -1;
    if (code >= 90 && code <= 97) look.colour = code - 90 + 8;
    if (code >= 100 && code <= 107) look.background = code - 100 + 8;
  }
}

class Screen {
 public:
  explicit Screen(std::size_t columns) : columns_(columns) {}

  void put(std::string glyph) {
    if (column_ == columns_) {  // the cursor waits behind the last column until something follows
      new_line();
      column_ = 0;
    }
    TerminalLine& line = lines_.back();
    if (line.size() <= column_) line.resize(column_ + 1);
    line[column_++] = {std::move(glyph), look_};
  }

  void control(char c) {
    if (c == '\r') column_ = 0;
    if (c == '\n') new_line();
    if (c == '\b' && column_ > 0) --column_;
    if (c == '\t') column_ = std::min(columns_ - 1, (column_ / 8 + 1) * 8);
  }

  /// A control sequence ESC [ `words` `final`.
  void sequence(std::string_view words, char final) {
    if (final == 'm') set_look(look_, parameters(words));
    if (final == 'K') erase(parameters(words).front());
  }

  std::vector<TerminalLine> lines() && {
    for (TerminalLine& line : lines_)
      while (!line.empty() && line.back().glyph == " " && line.back().look.background < 0) line.pop_back();
    while (!lines_.empty() && lines_.back().empty()) lines_.pop_back();
    return std::move(lines_);
  }

 private:
  void new_line() { lines_.emplace_back(); }

  /// 0: from the cursor on, 1: up to the cursor, 2: the whole line.
  void erase(int which) {
    TerminalLine& line = lines_.back();
    const std::size_t begin = which == 0 ? column_ : 0, end = which == 1 ? column_ + 1 : line.size();
    for (std::size_t i = begin; i < std::min(end, line.size()); ++i) line[i] = {};
  }

  const std::size_t columns_;
  std::size_t column_ = 0;
  std::vector<TerminalLine> lines_ = std::vector<TerminalLine>(1);
  CellLook look_;
};

/// The index behind an escape sequence that begins at `at`, which is applied if it is one that the screen knows.
std::size_t apply_escape(Screen& screen, std::string_view all, std::size_t at) {
  if (at + 1 >= all.size()) return all.size();
  if (all[at + 1] == '[') {
    const auto is_final = [](char c) { return c >= '@' && c <= '~'; };
    const auto end = std::ranges::find_if(all.substr(at + 2), is_final) - all.begin();
    if (end == static_cast<std::ptrdiff_t>(all.size())) return all.size();
    const auto last = static_cast<std::size_t>(end);
    screen.sequence(all.substr(at + 2, last - at - 2), all[last]);
    return last + 1;
  }
  if (all[at + 1] == ']') {  // the title of the window and the like, up to BEL
    const std::size_t end = all.find('\a', at);
    return end == std::string_view::npos ? all.size() : end + 1;
  }
  return at + 2;
}

}  // namespace

std::vector<TerminalLine> terminal_lines(std::string_view written, int columns) {
  require<ConfigError>(columns >= 1, "a terminal of ", columns, " columns: must be at least 1");
  const std::string all = valid_utf8(written);
  Screen screen(static_cast<std::size_t>(columns));
  for (std::size_t i = 0; i < all.size();) {
    if (all[i] == '\x1B') {
      i = apply_escape(screen, all, i);
    } else if (static_cast<unsigned char>(all[i]) < 0x20 || all[i] == '\x7F') {
      screen.control(all[i++]);
    } else {
      std::size_t end = i + 1;
      while (end < all.size() && (static_cast<unsigned char>(all[end]) & 0xC0) == 0x80) ++end;
      screen.put(all.substr(i, end - i));
      i = end;
    }
  }
  return std::move(screen).lines();
}

}  // namespace trireme::figures
