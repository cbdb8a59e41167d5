#pragma once
// Columns of text that line up on a terminal.
#include <string>
#include <vector>

namespace trireme {

using TableRow = std::vector<std::string>;

/// One line a row, two spaces between columns, no spaces at the end of a line. A column whose cells are all numbers
/// (perhaps with a unit; "–" and an empty cell stand for a missing one) is right-aligned, and its header with it. Cells
/// may be coloured. Rows may be shorter than the header or longer.
std::string table(const TableRow& header, const std::vector<TableRow>& rows);

}  // namespace trireme
