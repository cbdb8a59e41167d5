#include "trireme/base/table.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "trireme/base/utf8.hpp"

namespace trireme {
namespace {

enum class Look { missing, number, words };

Look look_of(std::string_view cell) {
  while (cell.starts_with("\x1B[")) cell.remove_prefix(std::min(cell.size(), cell.find('m') + 1));
  const std::size_t end_of_color = cell.find("\x1B[");
  cell = cell.substr(0, end_of_color);
  if (cell.empty() || cell == "-" || cell == "–") return Look::missing;
  const std::size_t first = cell.find_first_not_of("+-.");
  return first != std::string_view::npos && cell[first] >= '0' && cell[first] <= '9' ? Look::number : Look::words;
}

struct Column {
  std::size_t width = 0;
  bool has_numbers = false;
  bool has_words = false;

  bool right_aligned() const { return has_numbers && !has_words; }
};

void widen(std::vector<Column>& columns, const TableRow& row) {
  if (columns.size() < row.size()) columns.resize(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) columns[i].width = std::max(columns[i].width, display_width(row[i]));
}

std::string line(const std::vector<Column>& columns, const TableRow& row) {
  std::string out;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::string padding(columns[i].width - display_width(row[i]), ' ');
    if (i > 0) out += "  ";
    out += columns[i].right_aligned() ? padding + row[i] : row[i] + padding;
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + '\n';
}

}  // namespace

std::string table(const TableRow& header, const std::vector<TableRow>& rows) {
  std::vector<Column> columns;
  widen(columns, header);
  for (const TableRow& row : rows) {
    widen(columns, row);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Look look = look_of(row[i]);
      columns[i].has_numbers |= look == Look::number;
      columns[i].has_words |= look == Look::words;
    }
  }
  std::string out;
  if (!header.empty()) out += line(columns, header);
  for (const TableRow& row : rows) out += line(columns, row);
  return out;
}

}  // namespace trireme
