// `trireme bench machine -n N -o machine.toml`: short trainings of different shapes and layouts, and what the planner
// learns from them about this machine.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "trireme/base/file_output.hpp"
#include "trireme/base/host_memory.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/table.hpp"
#include "trireme/cli/bench.hpp"
#include "trireme/cli/named_layout.hpp"
#include "trireme/cli/run_program.hpp"
#include "trireme/config/read/derive.hpp"
#include "trireme/config/read/flags.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/rules/validate.hpp"
#include "trireme/planner/calibration.hpp"
#include "trireme/report/run_files.hpp"

namespace trireme::cli {
namespace {

/// A small Llama.
struct Training {
  int layers, hidden, mlp, vocab, seq_len, micro_batch, grad_accum;
};
// One dimension at a time, and some mixtures. On a GPU every size is kOnGpu times as large.
constexpr int kOnGpu = 8;
const std::vector<Training> kTrainings{
    {4, 128, 384, 1024, 128, 4, 1},  {8, 128, 384, 1024, 128, 4, 1}, {2, 256, 768, 1024, 128, 4, 1},
    {2, 384, 1024, 1024, 128, 4, 1}, {4, 64, 256, 1024, 128, 4, 1},  {4, 128, 384, 8192, 128, 4, 1},
    {4, 128, 384, 1024, 512, 2, 1},  {4, 128, 384, 1024, 64, 2, 1},  {4, 128, 384, 1024, 128, 1, 4},
    {4, 128, 1024, 1024, 128, 8, 1}, {6, 192, 512, 4096, 256, 2, 2}, {2, 512, 1408, 2048, 64, 4, 2}};
// Of the first and the last two shapes.
const std::vector<std::string> kOtherLayouts{"tp", "pp", "zero3"};
constexpr int kWarmUp = 3;

class MachineBench {
 public:
  MachineBench(const BenchMachineCommand& command, Console& console) : command_(command), console_(console) {
    require<ConfigError>(command.ranks >= 1 && command.ranks <= 64, "-n ", command.ranks, ": must be from 1 to 64");
    require<ConfigError>(command.trainings >= 0, "--trainings ", command.trainings, ": must be at least 1");
    require<ConfigError>(command.steps >= 3, "--steps ", command.steps, ": must be at least 3");
    if (std::filesystem::exists("/dev/nvidia0")) scale_ = kOnGpu;
    folder_ = std::filesystem::path(command.output + ".runs");
    require<ConfigError>(!std::filesystem::exists(command.output), command.output, " already exists\n  fix: -o FILE");
  }

  void run() {
    std::filesystem::remove_all(folder_);  // of a run that was stopped
    std::filesystem::create_directories(folder_);
    const std::string n = std::to_string(command_.ranks);
    for (const Training& shape : kTrainings) measure(shape, command_.ranks > 1 ? "dp" + n : "dp1");
    if (command_.ranks % 2 == 0)  // pairs of ranks: every training can be cut in two
      for (const std::string& layout : kOtherLayouts)
        for (const std::size_t k : {std::size_t{0}, kTrainings.size() - 2, kTrainings.size() - 1})
          measure(kTrainings[k],
                  layout == "zero3" ? "dp" + n + ".zero3" : text("dp", command_.ranks / 2, ".", layout, 2));
    const planner::Calibration found = planner::calibrate(steps_, start());
    replace_file(command_.output, planner::to_toml(found));
    print(found);
    std::filesystem::remove_all(folder_);
  }

 private:
  planner::Calibration start() const {
    planner::Calibration out = planner::uncalibrated_cpu(command_.ranks);
    if (const std::optional<planner::Gpu> gpu = planner::find_gpu(device_)) {
      out = {.machine = {*gpu, command_.ranks}, .software = planner::software_named("trireme")};
      out.software.microbatch_host_s = 1e-4;
      return out;
    }
    require<ConfigError>(device_.empty(), "bench machine: ", device_, " is not in the planner's table\n",
                         "  fix: trireme plan --gpu with the nearest one, --gpu-memory-gb and --network-gb-s");
    const HostMemory memory = host_memory();
    if (memory.total > 0) out.machine.gpu.memory_bytes = static_cast<double>(memory.total) / command_.ranks;
    return out;
  }

  void measure(const Training& shape, const std::string& words) {
    if (command_.trainings > 0 && std::ssize(steps_) == command_.trainings) return;
    const NamedLayout layout = parse_named_layout(words, "layout");
    const std::string name = text("run-", steps_.size());
    const auto number = [](std::int64_t value) { return std::to_string(value); };
    const std::int64_t microbatches = layout.degree("pp") > 1 ? std::max(4, shape.grad_accum) : shape.grad_accum;
    const int heads = scale_ * shape.hidden / (scale_ == 1 ? 32 : 128);
    const std::vector<std::string> flags{"--model.model_type",
                                         "llama",
                                         "--model.num_hidden_layers",
                                         number(shape.layers),
                                         "--model.hidden_size",
                                         number(scale_ * shape.hidden),
                                         "--model.num_attention_heads",
                                         number(heads),
                                         "--model.num_key_value_heads",
                                         number(heads),
                                         "--model.intermediate_size",
                                         number(scale_ * shape.mlp),
                                         "--model.vocab_size",
                                         number(scale_ * shape.vocab),
                                         "--model.max_position_embeddings",
                                         "8192",
                                         "--training.seq_len",
                                         number(scale_ * shape.seq_len),
                                         "--training.micro_batch_size",
                                         number(shape.micro_batch),
                                         "--training.grad_accum",
                                         number(microbatches),
                                         "--training.steps",
                                         number(kWarmUp + command_.steps),
                                         "--data.0.sources.0.path",
                                         "synthetic",
                                         "--parallelism.dp",
                                         number(layout.degree("dp")),
                                         "--parallelism.tp",
                                         number(layout.degree("tp")),
                                         "--parallelism.pp",
                                         number(layout.degree("pp")),
                                         "--parallelism.zero",
                                         number(layout.keys.contains("zero") ? layout.degree("zero") : 1)};
    std::vector<std::string> words_of_run{"train",
                                          config_file(),
                                          "-n",
                                          number(layout.ranks()),
                                          "--run.dir",
                                          folder_.string(),
                                          "--run.name",
                                          name,
                                          "--checkpoint.interval",
                                          "0",
                                          "--checkpoint.resume",
                                          "never",
                                          "--checkpoint.export_hf",
                                          "false",
                                          "--metrics.tensorboard",
                                          "false",
                                          "--metrics.console",
                                          "quiet",
                                          "--metrics.interval",
                                          "1"};
    words_of_run.insert(words_of_run.end(), flags.begin(), flags.end());
    const std::filesystem::path log = folder_ / (name + ".log");
    const int code = run_own_program(words_of_run, log);
    require<ConfigError>(code == 0, "bench machine: a training of ", words, " ended with exit code ", code,
                         "\n  see: ", log.string());
    config::LoadedConfig loaded = config::load_config("", config::parse_flags(flags));
    config::throw_if_any(loaded.violations);
    config::derive(loaded, {.ranks = static_cast<int>(layout.ranks()), .how = "", .ranks_of_a_host = command_.ranks});
    const report::RunFiles run = report::read_run(folder_ / name);
    if (const auto* const started = run.last("start")) {
      loaded.config.model.dtype = started->word("compute_dtype");
      device_ = started->word("device_name");
    }
    std::vector<double> seconds = run.metrics["train_time_s"];
    require<ConfigError>(std::ssize(seconds) > kWarmUp, "bench machine: no step was recorded\n  see: ", log.string());
    seconds.erase(seconds.begin(), seconds.begin() + kWarmUp);
    std::ranges::sort(seconds);
    steps_.push_back({planner::work_of(loaded.config), seconds[seconds.size() / 2]});
    names_.push_back(text(shape.layers, " layers, hidden ", scale_ * shape.hidden, ", ", microbatches, " x ",
                          shape.micro_batch, " x ", scale_ * shape.seq_len, ", ", words));
    console_.err << names_.back() << ": " << human_seconds(steps_.back().seconds) << std::endl;
  }

  /// An empty one: everything is in flags.
  std::string config_file() const {
    const std::filesystem::path path = folder_ / "empty.toml";
    if (!std::filesystem::exists(path)) replace_file(path, "[[data]]\nsources = [{ path = \"synthetic\" }]\n");
    return path.string();
  }

  void print(const planner::Calibration& found) const {
    std::vector<TableRow> rows;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      planner::Machine machine = found.machine;
      machine.gpus = steps_[i].work.gpus();
      const double predicted = planner::predict_step(steps_[i].work, machine, found.software).total();
      rows.push_back({names_[i], human_seconds(steps_[i].seconds), human_seconds(predicted),
                      text(std::round(1000 * (predicted / steps_[i].seconds - 1)) / 10, " %")});
    }
    console_.out << table({"training", "measured", "with these constants", "error"}, rows) << "median error "
                 << std::round(1000 * planner::median_error(steps_, found)) / 10 << " %\nwritten to " << command_.output
                 << "\nnext: trireme plan CONFIG --gpus " << command_.ranks << " --machine " << command_.output << "\n";
  }

  const BenchMachineCommand& command_;
  Console& console_;
  std::filesystem::path folder_;
  int scale_ = 1;
  std::string device_ = {};  // as CUDA names it; empty: a CPU
  std::vector<planner::MeasuredStep> steps_;
  std::vector<std::string> names_;
};

}  // namespace

int run_bench_machine(const BenchMachineCommand& command, Console& console) {
  MachineBench(command, console).run();
  return 0;
}

}  // namespace trireme::cli
