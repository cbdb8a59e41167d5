// `trireme bench fit`: starts every run in processes of its own, and collects their results.
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <map>
#include <optional>
#include <sstream>

#include <ATen/Context.h>
#include <torch/optim/adam.h>
#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/module/fit.hpp"
#include "trireme/runtime/launcher/job.hpp"
#include "trireme/runtime/rank/libtorch_facts.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/workloads/workload.hpp"

namespace trireme::cli {
namespace {

constexpr std::uint64_t kSeed = 1;

/// Empty: one device without any.
const std::map<std::string, std::optional<Parallelism>>& techniques() {
  const auto fsdp = [](Sharding sharding) {
    return Parallelism{.p_type = ParallelismType::FSDP,
                       .config_fsdp = {.sharding_strategy = sharding, .wrap_policy = wrap_by_size(1000)}};
  };
  static const std::map<std::string, std::optional<Parallelism>> all{
      {"none", std::nullopt},
      {"fsdp_no_shard", fsdp(Sharding::no_shard)},
      {"fsdp_shard_grad_op", fsdp(Sharding::shard_grad_op)},
      {"fsdp_full_shard", fsdp(Sharding::full_shard)},
      {"pipeline", Parallelism{.p_type = ParallelismType::PIPELINE}}};
  return all;
}

void check(const BenchFitCommand& c) {
  for (const std::string& technique : c.techniques) {
    std::string names;
    for (const auto& [name, parallel] : techniques()) names += (names.empty() ? "" : ", ") + name;
    require<ConfigError>(techniques().contains(technique), "--techniques ", technique, ": must be of ", names);
  }
  const auto& models = workloads::workload_names();
  std::string names;
  for (const std::string& name : models) names += (names.empty() ? "" : ", ") + name;
  require<ConfigError>(std::ranges::find(models, c.model) != models.end(), "--model ", c.model, ": must be one of ",
                       names);
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

double learning_rate(const std::string& model) { return model.ends_with("big") ? 3e-4 : 1e-3; }

/// One run, on one of its ranks. Rank 0 writes the result.
void run_on_rank(const BenchFitCommand& c, const Environment& env, const Variables& variables) {
  const bool gpu = uses_gpus(c);
  ContextOptions options;
  if (!gpu) options.backend = "gloo";
  const std::optional<Parallelism>& technique = techniques().at(c.techniques.at(0));
  const bool pipelined = technique && technique->p_type == ParallelismType::PIPELINE;
  const ParallelContext context(pipelined ? ParallelSizes{.pipeline_parallel_size = env.world_size}
                                          : ParallelSizes{.data_parallel_size = env.world_size},
                                env, variables, options);
  std::vector<at::Device> devices;
  for (int r = 0; r < env.world_size; ++r)
    devices.push_back(gpu ? at::Device(at::kCUDA, static_cast<at::DeviceIndex>(r)) : at::Device(at::kCPU));
  const workloads::Workload work = workloads::make_workload(c.model, c.samples, kSeed);
  FitOptions fit_options{.epochs = c.epochs, .batch_size = c.batch_sizes.at(0), .seed = kSeed};
  fit_options.parallel = technique;
  if (fit_options.parallel) {
    fit_options.parallel->devices = devices;
    fit_options.mesh = &context.mesh();
  } else {
    fit_options.device = devices[0];
  }
  const FitResult result = fit(
      work.model, tensor_dataset(work.train_x, work.train_y), tensor_dataset(work.validation_x, work.validation_y),
      [](const at::Tensor& logits, const at::Tensor& y) { return at::cross_entropy_loss(logits, y); },
      [&](std::vector<at::Tensor> parameters) {
        return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                    torch::optim::AdamOptions(learning_rate(c.model)));
      },
      fit_options);
  if (env.rank != 0) return;
  std::ofstream out(c.result);
  out << std::setprecision(10) << result.seconds << ' ' << result.validation_loss << ' ' << result.validation_accuracy
      << '\n';
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
  in >> row.run_time >> row.loss >> row.accuracy;
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
    return rank_main(how, [&](const Environment& env) { run_on_rank(command, env, how.variables); });
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
