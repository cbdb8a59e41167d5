// Writes event files and traces with known contents, for tensorboard_reads_events.py to read back.
//   usage: write_events FOLDER
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>

#include <unistd.h>

#include "trireme/base/log.hpp"
#include "trireme/base/trace.hpp"
#include "trireme/metrics/hub_logger.hpp"
#include "trireme/metrics/tensorboard_logger.hpp"

namespace {

using namespace trireme;

constexpr std::int64_t kSteps = 2000;

void write_events(const std::filesystem::path& folder) {
  metrics::TensorBoardLogger logger(folder);
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    logger.add_scalars_from_list({{"loss", 10.0 / static_cast<double>(step)},
                                  {"tokens", step * 4096, "human_format"},
                                  {"Verlust/µ 漢字 😀", -0.1 * static_cast<double>(step)}},
                                 step);
  }
  // Steps beyond 32 bits, a tag twice in one call, NaN and infinity, a tag that is not UTF-8.
  logger.add_scalars_from_list({{"twice", 1.0}, {"twice", 2.0}}, std::int64_t{1} << 40);
  logger.add_scalars_from_list({{"odd", std::nan("")}}, 0);
  logger.add_scalars_from_list({{"odd", std::numeric_limits<double>::infinity()}}, 1);
  logger.add_scalars_from_list({{"bad \xFF byte", 3.0}}, 5);
}

/// Through the hub logger, with `cp` as the hub command.
int upload_events(const std::filesystem::path& folder, const std::filesystem::path& hub) {
  Log log(fd_sink(STDERR_FILENO));
  metrics::HubLogger logger({.folder = folder, .upload_command = {"cp", "-r", "{dir}", hub.string()}, .every_calls = 7},
                            log);
  for (std::int64_t step = 1; step <= 100; ++step)
    logger.add_scalars_from_list({{"loss", 1.0 / static_cast<double>(step)}}, step);
  if (const auto failure = logger.close()) {
    std::fprintf(stderr, "write_events: %s\n", failure->c_str());
    return 1;
  }
  return 0;
}

void write_traces(const std::filesystem::path& folder) {
  Tracer tracer({.rank = 3, .world_size = 4, .backend = "gloo"});
  tracer.enable();
  tracer.name_thread("main \"thread\"");
  const int stream = tracer.new_lane("comm stream");
  for (int microbatch = 0; microbatch < 4; ++microbatch) {
    const TraceSpan step(tracer, "microbatch", "train",
                         {{"microbatch", microbatch}, {"text", "a\nb\xFF"}, {"nan", std::nan("")}});
    {
      const TraceSpan forward(tracer, "forward", "compute", {{"first", microbatch == 0}});
    }
    {
      const TraceSpan backward(tracer, "backward", "compute");
    }
    tracer.counter("memory", 1e6 * microbatch);
    tracer.add_span(stream, "all_reduce", "comm", tracer.now_ns(), 1000, {{"bytes", 1024U}});
  }
  std::thread([&] { const TraceSpan load(tracer, "load", "data"); }).join();
  tracer.write(folder / "trace.json");
  tracer.write(folder / "trace.json.gz");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_events FOLDER\n");
    return 64;
  }
  const std::filesystem::path folder = argv[1];
  write_events(folder / "tb");
  write_traces(folder);
  return upload_events(folder / "hub_tb", folder / "hub");
}
