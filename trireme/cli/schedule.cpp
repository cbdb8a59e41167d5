#include "trireme/schedule/schedule.hpp"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "trireme/cli/commands.hpp"
#include "trireme/schedule/draw.hpp"
#include "trireme/schedule/generate.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kMaxSteps = 20'000'000;  // a few GB; a drawing of more helps nobody

void write_file(const std::string& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary);
  file << contents << std::flush;
  require<ConfigError>(file.good(), "cannot write ", path, ": ", std::strerror(errno));
}

}  // namespace

ExitCode run_schedule(const ScheduleOptions& o, Console& console) {
  for (const auto& [option, cost] : {std::pair{"--forward", o.costs.F}, std::pair{"--input-grad", o.costs.I},
                                     std::pair{"--weight-grad", o.costs.W}, std::pair{"--transfer", o.costs.transfer}})
    require<ConfigError>(std::isfinite(cost) && cost >= 0, option, " = ", cost, ": a time is at least 0");
  const std::int64_t chunks = chunks_per_rank(o.name, o.virtual_stages);
  require<ConfigError>(
      o.stages <= 100'000 && o.microbatches <= 10'000'000 && chunks <= 1'000 &&
          std::int64_t{o.stages} * std::max(1, o.microbatches) * std::max<std::int64_t>(1, chunks) <= kMaxSteps,
      o.stages, " stages × ", o.microbatches, " microbatches × ", chunks, " chunks is too large to draw");

  const Schedule schedule = make_schedule(o.name, o.stages, o.microbatches, o.virtual_stages);
  const Replay replayed = replay(schedule, o.costs);
  if (o.print_text) {
    console.out << str(schedule);
  } else {
    console.out << draw_text(schedule, replayed, {.width = console.terminal.width, .color = console.terminal.color});
  }
  console.out << summary(schedule, replayed);
  if (!o.svg.empty()) {
    write_file(o.svg, draw_svg(schedule, replayed));
    console.out << "written to " << o.svg << "\n";
  }
  return ExitCode::done;
}

}  // namespace trireme
