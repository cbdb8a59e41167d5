// The tables and figures of `trireme bench`, and `trireme bench combine`.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "trireme/base/error.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/metrics/line_chart.hpp"

namespace trireme::cli {
namespace {

constexpr std::size_t kColumns = 11;

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) out.push_back(cell);
  return out;
}

double number_in(const std::string& cell, const std::string& where) {
  try {
    std::size_t end = 0;
    const double value = std::stod(cell, &end);
    if (end == cell.size()) return value;
  } catch (const std::exception&) {
  }
  throw ConfigError(text(where, ": '", cell, "' is not a number"));
}

void write_file(const std::string& file, const std::string& content) {
  std::ofstream out(file, std::ios::binary);
  out << content;
  out.close();
  require<ConfigError>(out.good(), file, ": cannot be written\n  fix: --output: a folder that can be written");
}

}  // namespace

std::string csv_header() {
  return "start_time,end_time,run_time,model,parallel,epochs,batch_size,loss,accuracy,gpu_count,gpu_model\n";
}

std::string csv_line(const BenchRow& row) {
  std::string device = row.gpu_model;
  std::ranges::replace(device, ',', ' ');
  std::ostringstream out;
  out << row.start_time << ',' << row.end_time << ',' << row.run_time << ',' << row.model << ',' << row.parallel << ','
      << row.epochs << ',' << row.batch_size << ',' << row.loss << ',' << row.accuracy << ',' << row.gpu_count << ','
      << device << '\n';
  return out.str();
}

std::vector<BenchRow> read_csv(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  require<ConfigError>(in && std::getline(in, line) && line + "\n" == csv_header(), file,
                       ": is not a table of `trireme bench fit`: its first line must be\n  ", csv_header());
  std::vector<BenchRow> out;
  for (int number = 2; std::getline(in, line); ++number) {
    const std::string where = text(file, ":", number);
    const std::vector<std::string> c = cells_of(line);
    require<ConfigError>(c.size() == kColumns, where, ": ", c.size(), " columns: must be ", kColumns);
    const auto integer = [&](std::size_t i) { return static_cast<int>(number_in(c[i], where)); };
    out.push_back({c[0], c[1], number_in(c[2], where), c[3], c[4], integer(5), integer(6), number_in(c[7], where),
                   number_in(c[8], where), integer(9), c[10]});
  }
  return out;
}

void write_results(const std::string& stem, const std::string& title, const std::vector<BenchRow>& rows) {
  std::string table = csv_header();
  std::set<int> sizes, counts;
  for (const BenchRow& row : rows) {
    table += csv_line(row);
    sizes.insert(row.batch_size);
    counts.insert(row.gpu_count);
  }
  write_file(stem + ".csv", table);
  metrics::Chart chart{.title = title, .x_title = "batch size", .y_title = "run time in seconds", .x = {}, .lines = {}};
  for (const int size : sizes) chart.x.push_back(std::to_string(size));
  std::map<std::pair<std::string, int>, metrics::ChartLine> lines;
  for (const BenchRow& row : rows) {
    metrics::ChartLine& line = lines[{row.parallel, row.gpu_count}];
    if (line.y.empty()) {
      line.name = counts.size() > 1 ? text(row.parallel, " x ", row.gpu_count) : row.parallel;
      line.y.assign(sizes.size(), std::numeric_limits<double>::quiet_NaN());
    }
    line.y[static_cast<std::size_t>(std::distance(sizes.begin(), sizes.find(row.batch_size)))] = row.run_time;
  }
  for (const auto& [key, line] : lines) chart.lines.push_back(line);
  write_file(stem + ".svg", draw_svg(chart));
}

int run_bench_combine(const BenchCombineCommand& command, Console& console) {
  std::vector<BenchRow> all;
  std::set<std::string> models;
  for (const std::string& file : command.files)
    for (const BenchRow& row : read_csv(file)) {
      all.push_back(row);
      models.insert(row.model);
    }
  require<ConfigError>(!all.empty(), "bench combine: the tables have no rows");
  require<ConfigError>(models.size() == 1, "bench combine: tables of ", models.size(), " models, such as ",
                       *models.begin(), " and ", *models.rbegin(), "\n  fix: those of one model");
  std::ranges::stable_sort(all, {},
                           [](const BenchRow& r) { return std::tuple(r.parallel, r.gpu_count, r.batch_size); });
  std::filesystem::create_directories(command.output);
  const std::string stem = (std::filesystem::path(command.output) / ("combined-" + *models.begin())).string();
  write_results(stem, text(*models.begin(), " on ", all[0].gpu_model), all);
  console.out << stem << ".csv and .svg: " << all.size() << " runs\n";
  return 0;
}

}  // namespace trireme::cli
