// `trireme bench fit`: starts every run in processes of its own, and collects their results.
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>

#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/runtime/launcher/job.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/workloads/run_fit.hpp"

namespace trireme::cli {
namespace {

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

void check(const BenchFitCommand& c) {
  for (const std::string& technique : c.techniques) {
    const auto& known = workloads::technique_names();
    require<ConfigError>(std::ranges::find(known, technique) != known.end(), "--techniques ", technique,
                         ": must be one of ", listed(known));
  }
  const auto& models = workloads::workload_names();
  require<ConfigError>(std::ranges::find(models, c.model) != models.end(), "--model ", c.model, ": must be one of ",
                       listed(models));
  for (const int size : c.batch_sizes) require<ConfigError>(size >= 1, "--batch-sizes ", size, ": must be >= 1");
  require<ConfigError>(c.epochs >= 1 && c.ranks >= 1 && c.samples >= 1, "--epochs ", c.epochs, ", -n ", c.ranks,
                       ", --samples ", c.samples, ": must be >= 1");
  require<ConfigError>(c.device == "auto" || c.device == "cpu" || c.device == "cuda", "--device ", c.device,
                       ": must be auto, cpu or cuda");
  require<ConfigError>(c.device != "cuda" || visible_gpus() >= c.ranks, "--device cuda with -n ", c.ranks,
                       ": there are ", visible_gpus(), " GPUs\n  fix: at most as many ranks, or --device cpu");
}

bool uses_gpus(const BenchFitCommand& c) {
  return c.device == "cuda" || (c.device == "auto" && visible_gpus() >= c.ranks);
}

std::string time_text(std::chrono::system_clock::time_point when, const char* format) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char out[40];
  std::strftime(out, sizeof out, format, &utc);
  return out;
}

std::string device_name(bool gpu) {
  if (gpu) return libtorch_facts().gpus.at(0);
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  return "CPU";
}

BenchRow measure(const BenchFitCommand& c, const std::string& technique, int batch_size, const std::string& device) {
  const std::filesystem::path result = std::filesystem::path(c.output) / text(".result-", ::getpid());
  std::filesystem::remove(result);
  const int ranks = technique == "none" ? 1 : c.ranks;
  launcher::Job job{.program = {std::filesystem::read_symlink("/proc/self/exe").string(), "bench", "fit", "--model",
                                c.model, "--techniques", technique, "--batch-sizes", text(batch_size), "--epochs",
                                text(c.epochs), "-n", text(ranks), "--samples", text(c.samples), "--device",
                                uses_gpus(c) ? "cuda" : "cpu", "--result", result.string()},
                    .variables = process_variables(),
                    .ranks = ranks};
  BenchRow row{.model = c.model, .parallel = technique, .epochs = c.epochs, .batch_size = batch_size};
  row.start_time = time_text(std::chrono::system_clock::now(), "%Y-%m-%dT%H:%M:%S");
  std::ostringstream log;
  const int code = launcher::run_job(job, log);
  row.end_time = time_text(std::chrono::system_clock::now(), "%Y-%m-%dT%H:%M:%S");
  std::ifstream in(result);
  std::string seconds, loss, accuracy;  // as words: a loss may be nan
  in >> seconds >> loss >> accuracy;
  row.run_time = std::strtod(seconds.c_str(), nullptr);
  row.loss = std::strtod(loss.c_str(), nullptr);
  row.accuracy = std::strtod(accuracy.c_str(), nullptr);
  if (code != 0 || !in)
    throw InternalError(text("bench fit: ", technique, " with batch size ", batch_size, " ended with exit code ", code,
                             "\n", log.str()));
  std::filesystem::remove(result);
  row.gpu_count = ranks;
  row.gpu_model = device;
  return row;
}

}  // namespace

int run_bench_fit(const BenchFitCommand& command, Console& console) {
  check(command);
  if (!command.result.empty()) {
    const RankMain how{.words = command.words, .variables = process_variables(), .quiet = true};
    return rank_main(how, [&](const Environment& env) {
      const workloads::FitFigures figures =
          workloads::run_fit({command.model, command.techniques.at(0), command.batch_sizes.at(0), command.epochs,
                              command.samples, uses_gpus(command)},
                             env, how.variables);
      if (env.rank != 0) return;
      std::ofstream(command.result) << std::setprecision(10) << figures.seconds << ' ' << figures.validation_loss << ' '
                                    << figures.validation_accuracy << '\n';
    });
  }
  std::filesystem::create_directories(command.output);
  const bool gpu = uses_gpus(command);
  const std::string device = device_name(gpu);
  std::vector<BenchRow> rows;
  console.out << std::left << std::setw(20) << "technique" << std::setw(12) << "batch size" << std::setw(10)
              << "seconds" << std::setw(10) << "loss" << "accuracy" << std::endl;
  for (const std::string& technique : command.techniques)
    for (const int size : command.batch_sizes) {
      rows.push_back(measure(command, technique, size, device));
      const BenchRow& row = rows.back();
      console.out << std::setw(20) << technique << std::setw(12) << size << std::setw(10) << std::setprecision(4)
                  << row.run_time << std::setw(10) << row.loss << row.accuracy << std::endl;
    }
  const std::string stem =
      (std::filesystem::path(command.output) / text("benchmark-", command.model, "-", gpu ? "cuda" : "cpu", "-",
                                                    time_text(std::chrono::system_clock::now(), "%Y%m%d-%H%M%S")))
          .string();
  write_results(stem, text(command.model, " on ", command.ranks, " x ", device), rows);
  console.out << stem << ".csv and .svg" << std::endl;
  return 0;
}

}  // namespace trireme::cli
