#pragma once
// Formats a text table with aligned columns for the terminal.
#include <string>
#include <vector>

namespace trireme {

using TableRow = std::vector<std::string>;

/// One line per row, two spaces between columns, no trailing spaces. A column whose cells are all numbers (optionally
/// with a unit; "–" and an empty cell mean missing) is right-aligned, including its header. Cells may be coloured. Rows
/// may be shorter or longer than the header.
std::string table(const TableRow& header, const std::vector<TableRow>& rows);

}  // namespace trireme
