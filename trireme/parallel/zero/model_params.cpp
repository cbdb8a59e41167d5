#include "trireme/parallel/zero/model_params.hpp"

#include <algorithm>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/comm/group_text.hpp"

namespace trireme {
namespace {

/// A line for each parameter: "order stage dtype trained dims...\tname".
std::string lines_of(const std::vector<ParamSection>& sections) {
  std::string lines;
  for (const ParamSection& section : sections)
    for (const ModelParam& param : section.params) {
      lines +=
          text(section.order, " ", section.stage, " ", static_cast<int>(param.dtype), " ", param.is_trained ? 1 : 0);
      for (const std::int64_t size : param.shape) lines += text(" ", size);
      lines += text("\t", param.name, "\n");
    }
  return lines;
}

void add_line(const std::string& line, std::vector<ParamSection>& sections) {
  const std::size_t tab = line.find('\t');
  std::istringstream numbers(line.substr(0, tab));
  int order = 0, stage = 0, dtype = 0, trained = 0;
  numbers >> order >> stage >> dtype >> trained;
  ModelParam param{.name = line.substr(tab + 1),
                   .shape = {},
                   .dtype = static_cast<at::ScalarType>(dtype),
                   .is_trained = trained == 1};
  for (std::int64_t size; numbers >> size;) param.shape.push_back(size);
  auto section = std::ranges::find(sections, order, &ParamSection::order);
  if (section == sections.end()) section = sections.insert(sections.end(), {order, stage, {}});
  require(section->stage == stage, "pipeline ranks ", section->stage, " and ", stage, " both hold chunk ", order);
  section->params.push_back(std::move(param));
}

}  // namespace

std::vector<ParamSection> all_sections(const std::vector<ParamSection>& own, Mesh& mesh) {
  std::vector<ParamSection> all;
  if (mesh.group(Axis::pp).size() == 1) {
    all = own;
  } else {
    Group& control = mesh.world().control();
    const bool tells = mesh.group(Axis::pp).world_ranks()[0] == 0;  // one pipeline is enough
    std::string joined;
    for (const std::string& lines : gather_texts(control, tells ? lines_of(own) : "")) joined += lines;
    std::istringstream lines(broadcast_text(control, joined));
    for (std::string line; std::getline(lines, line);) add_line(line, all);
  }
  std::ranges::sort(all, {}, &ParamSection::order);
  return all;
}

}  // namespace trireme
