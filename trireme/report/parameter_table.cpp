// The parameters of the model with their global shapes, and what a rank holds of them.
#include <algorithm>
#include <cctype>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/svg.hpp"
#include "trireme/config/schema/dense_grid.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/layout/param_layout.hpp"
#include "trireme/report/sections.hpp"

namespace trireme::report {
namespace {

std::string shape_text(const Shape& shape) {
  std::string out;
  for (const std::int64_t size : shape) out += text(out.empty() ? "" : " &times; ", size);
  return out;
}

struct ParameterRow {
  Shape global, local;
  std::string cuts;
  std::map<int, std::pair<int, int>> layers_of_stage;  // first and last layer by pipeline stage; -1: no layers
  int count = 0;
};

std::string cuts_text(const Placement& placement, const Grid& grid) {
  std::string out;
  for (const Cut& cut : placement.cuts)
    if (grid.degree(cut.axis) > 1) out += text(out.empty() ? "" : ", ", "dim ", cut.dim, " over ", name(cut.axis));
  return out.empty() ? "whole on each rank" : out;
}

/// In the order of the model; layers whose parameters have equal shapes share a row.
std::vector<std::pair<std::string, ParameterRow>> rows_of(const Config& c) {
  const std::vector<PipelineChunk> chunks = pipeline_chunks(c.model, c.parallelism);
  const ParamLayout layout(config::dense_grid(c.parallelism), config::expert_grid(c.model, c.parallelism));
  std::vector<std::pair<std::string, ParameterRow>> rows;
  for (const Parameter& parameter : all_parameters(c.model)) {
    const auto [inner, number] = without_layer(parameter.name);
    const int layer = static_cast<int>(number);
    const std::string name = layer < 0 ? parameter.name : text("layers.*.", inner);
    const ParamSpec& spec = parameter.spec;
    const Shape local = layout.local_shape(spec);
    auto row = std::ranges::find_if(rows, [&](const auto& each) {
      return each.first == name && each.second.global == spec.shape && each.second.local == local;
    });
    if (row == rows.end())
      row = rows.insert(rows.end(), {name,
                                     {.global = spec.shape,
                                      .local = local,
                                      .cuts = cuts_text(spec.placement, layout.grid(spec.placement.view)),
                                      .layers_of_stage = {}}});
    const int stage = c.parallelism.pp > 1 ? stage_of_parameter(chunks, parameter.name) : 0;
    auto& [first, last] = row->second.layers_of_stage.try_emplace(stage, layer, layer).first->second;
    first = std::min(first, layer);
    last = std::max(last, layer);
    ++row->second.count;
  }
  return rows;
}

std::string stages_text(const ParameterRow& row, bool pipeline) {
  std::string out;
  for (const auto& [stage, layers] : row.layers_of_stage) {
    out += text(out.empty() ? "" : " &middot; ", pipeline ? text("stage ", stage) : "");
    if (layers.first >= 0) out += text(pipeline ? ": " : "", "layers ", layers.first, "&ndash;", layers.second);
  }
  return out;
}

std::string table_of(const Config& c) {
  HtmlTable table{.header = {"parameter", "global shape", "on a rank", "cut", "where", "elements, all layers"},
                  .rows = {},
                  .right = {false, true, true, false, false, true}};
  for (const auto& [name, row] : rows_of(c)) {
    std::int64_t elements = row.count;
    for (const std::int64_t size : row.global) elements *= size;
    table.rows.push_back({text("<code>", xml_escaped(name), "</code>"), shape_text(row.global), shape_text(row.local),
                          row.cuts, stages_text(row, c.parallelism.pp > 1), thousands(elements)});
  }
  return captioned_html(
      table_html(table),
      text("Shapes before ZeRO (zero = ", c.parallelism.zero,
           "), which divides gradients and states, and with 3 the weights too, among the ranks that "
           "see other tokens. A vocabulary has a multiple of 128 rows per rank; the last are zeros."));
}

}  // namespace

std::string parameters_html(const Runs& runs) {
  std::string out;
  for (const RunFiles& run : runs) {
    out += run_heading(runs, run);
    if (!run.config || !run.grid() || run.config->config.model.num_hidden_layers == 0) {
      out += missing_html("The parameters are not known.", "config.toml is missing, or has no model.");
      continue;
    }
    try {
      out += table_of(run.config->config);
    } catch (const Error&) {
      out += missing_html("The parameters are not known.",
                          "The model is of a family that the program with this report does not have.");
    }
  }
  return out;
}

}  // namespace trireme::report
