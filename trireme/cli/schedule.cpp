#include "trireme/schedule/schedule.hpp"

#include <cctype>
#include <cmath>

#include "trireme/base/file_output.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/describe/pipeline.hpp"
#include "trireme/schedule/draw.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme::cli {
namespace {

constexpr double kMaxSteps = 2e7;  // a few GB; a larger drawing is useless
constexpr double kMaxCost = 1e12;

void check_costs(const ScheduleOptions& o) {
  for (const auto& [option, cost] : {std::pair{"--forward", o.costs.F}, std::pair{"--input-grad", o.costs.I},
                                     std::pair{"--weight-grad", o.costs.W}, std::pair{"--transfer", o.costs.transfer}})
    require<ConfigError>(cost >= 0 && cost <= kMaxCost, option, " = ", cost, ": must be from 0 to ", kMaxCost);
}

std::string lower(std::string word) {
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return word;
}

schedule::Schedule generated(const ScheduleOptions& o) {
  const int virtual_stages = o.virtual_stages == 0 ? 2 : o.virtual_stages;
  const schedule::ScheduleKind kind = schedule::parse_schedule_kind(lower(o.name));
  const int chunks = schedule::chunks_per_rank(kind, virtual_stages);
  require<ConfigError>(o.virtual_stages == 0 || kind == schedule::ScheduleKind::interleaved, "--virtual-stages ",
                       o.virtual_stages, " with ", o.name, ": only interleaved-1f1b takes a number of chunks");
  // V-shaped schedules are generated for at least two microbatches per stage.
  const double steps = static_cast<double>(o.stages) * std::max(2.0 * o.stages, static_cast<double>(o.microbatches)) *
                       static_cast<double>(chunks);
  require<ConfigError>(steps <= kMaxSteps, o.stages, " stages × ", o.microbatches, " microbatches × ", chunks,
                       " chunks is too large to draw");
  return schedule::make_schedule(kind, o.stages, o.microbatches, virtual_stages);
}

std::string names() {
  std::string all;
  for (const std::string& name : schedule::schedule_names()) all += text(all.empty() ? "" : ", ", name);
  return all;
}

}  // namespace

ExitCode run_schedule(const ScheduleOptions& o, Console& console) {
  require<ConfigError>(!o.name.empty() || !o.file.empty(), "no schedule\n  fix: one of ", names(), ", or --file FILE");
  check_costs(o);
  const schedule::Schedule schedule = o.file.empty() ? generated(o) : read_schedule(o.file);
  const schedule::Replay replayed = schedule::replay(schedule, o.costs);
  if (o.print_text) {  // as --file and pp_schedule_file read it
    console.out << str(schedule);
    console.err << schedule::summary(schedule, replayed);
  } else {
    console.out << schedule::draw_text(schedule, replayed,
                                       {.width = console.terminal.width, .color = console.terminal.color})
                << schedule::summary(schedule, replayed);
  }
  if (!o.svg.empty()) {
    replace_file(o.svg, schedule::draw_svg(schedule, replayed));
    (o.print_text ? console.err : console.out) << "written to " << o.svg << "\n";
  }
  return ExitCode::done;
}

}  // namespace trireme::cli
