// Compares the planner's predictions of step times with published runs, and fits its constants to a part of them.
//
//   planner_accuracy DATA          the table of docs/planning.md, with the constants that the planner has
//   planner_accuracy DATA --fit    fits them to every second group of runs (model x hosts), and shows the others
//   planner_accuracy DATA --leave-out   each source by constants that were fitted without it
//   planner_accuracy DATA --rows   a line for each run
//
// DATA: a folder with published_results.csv, planner/playbook_runs.csv, planner/playbook_failed.csv,
// planner/vtrain_single_node.csv and planner/vtrain_multi_node.csv.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/planner/fit_constants.hpp"
#include "trireme/planner/step_time.hpp"
#include "trireme/planner/trainer_memory.hpp"

namespace trireme::planner {
namespace {

using Record = std::map<std::string, std::string>;

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      out.emplace_back();
    else if (c != '\r')
      out.back() += c;
  }
  return out;
}

std::vector<Record> read_csv(const std::string& path) {
  std::ifstream in(path);
  require<DataError>(in.good(), path, ": cannot be read");
  std::string line;
  std::getline(in, line);
  const std::vector<std::string> names = fields_of(line);
  std::vector<Record> out;
  while (std::getline(in, line)) {
    const std::vector<std::string> values = fields_of(line);
    Record& record = out.emplace_back();
    for (std::size_t i = 0; i < std::min(names.size(), values.size()); ++i) record[names[i]] = values[i];
  }
  return out;
}

double number(const Record& record, const std::string& name, double otherwise = 0) {
  const auto found = record.find(name);
  if (found == record.end() || found->second.empty()) return otherwise;
  return std::strtod(found->second.c_str(), nullptr);
}
int whole(const Record& record, const std::string& name, int otherwise = 1) {
  return static_cast<int>(std::lround(number(record, name, otherwise)));
}

/// Constants that are fitted: those of all machines, of each GPU and of each trainer.
struct Constants {
  Reach reach;
  std::map<std::string, Gpu> gpus;
  std::map<std::string, Software> software;
};

Constants present_constants() {
  Constants out;
  for (const std::string& name : gpu_names()) out.gpus[name] = gpu_named(name);
  for (const std::string& name : software_names()) out.software[name] = software_named(name);
  return out;
}

struct Run {
  std::string source = {};  // a row of the table
  std::string group = {};   // model x hosts
  std::string gpu = {}, software = {};
  int gpus = 1;
  bool is_published = false;  // a row of published_results.csv
  double power = 1;           // of the GPU, next to its data sheet
  StepWork work = {};
  double seconds = 0;  // measured
  double memory = 0;   // bytes; 0: not reported

  double predicted(const Constants& constants) const {
    Machine machine{constants.gpus.at(gpu), gpus, constants.reach};
    machine.gpu.product_efficiency *= power;
    return predict_step(work, machine, constants.software.at(software)).total();
  }
  double error(const Constants& constants) const { return predicted(constants) / seconds - 1; }
};

StepWork playbook_model(const std::string& size) {
  StepWork w{.vocab = 131072, .seq_len = 4096};
  const auto set = [&](std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t mlp, bool tied) {
    w.layers = layers;
    w.hidden = hidden;
    w.heads = w.kv_heads = heads;
    w.mlp_width = mlp;
    w.tied = tied;
  };
  if (size.starts_with("1.3"))
    set(16, 2048, 32, 8192, true);
  else if (size.starts_with("3.5"))
    set(28, 3072, 32, 8192, true);
  else if (size.starts_with("8.8"))
    set(32, 4096, 32, 14336, false);
  else
    set(80, 8192, 64, 28672, false);
  w.head_dim = w.hidden / w.heads;
  return w;
}

void set_layout(StepWork& w, const Record& r, const char* dp, const char* tp, const char* pp) {
  w.dp = whole(r, dp);
  w.tp = whole(r, tp);
  w.pp = whole(r, pp);
  split_evenly(w);
}

void add_playbook(const std::string& path, std::vector<Run>& out) {
  for (const Record& r : read_csv(path)) {
    Run run{.source = "playbook",
            .group = r.at("params_b") + " x " + r.at("nodes"),
            .gpu = "h100",
            .software = "nanotron",
            .gpus = 8 * whole(r, "nodes"),
            .work = playbook_model(r.at("params_b"))};
    StepWork& w = run.work;
    w.micro_batch = whole(r, "mbs");
    w.microbatches = whole(r, "grad_acc");
    w.zero = whole(r, "zero");
    set_layout(w, r, "dp", "tp", "pp");
    run.seconds = w.tokens_per_step() / number(r, "tok_s");
    run.memory = number(r, "mem_gb") * 1073741824.0;
    out.push_back(run);
  }
}

void add_vtrain(const std::string& folder, const std::string& file, const std::string& source, std::vector<Run>& out) {
  for (const Record& r : read_csv(folder + "/planner/" + file)) {
    Run run{.source = source, .gpu = "a100", .software = "megatron-deepspeed", .gpus = whole(r, "# GPUs")};
    StepWork& w = run.work;
    w.layers = whole(r, "# layers");
    w.hidden = whole(r, "hidden size");
    w.heads = w.kv_heads = whole(r, "attention heads");
    w.head_dim = w.hidden / w.heads;
    w.mlp_width = 4 * w.hidden;
    w.mlp_matrices = 2;
    w.vocab = 51200;
    w.tied = true;
    w.seq_len = whole(r, "sequence length");
    w.micro_batch = whole(r, "micro batch");
    w.sequence_parallel = false;
    w.recompute = config::Recompute::full;
    w.zero = 0;
    set_layout(w, r, "data parallelism", "tensor parallelism", "pipeline parallelism");
    w.microbatches = whole(r, "global batch") / (w.dp * w.micro_batch);
    run.group = text(w.hidden, " x ", w.layers, " x ", run.gpus);
    run.seconds = number(r, "iteration time (ms)") / 1000;
    out.push_back(run);
  }
}

/// Papers and repositories; none: not a row that the planner can be compared with.
void add_published(const std::string& folder, std::vector<Run>& out) {
  for (const Record& r : read_csv(folder + "/published_results.csv")) {
    const std::string& source = r.at("source");
    const auto has = [&](const char* word) { return source.find(word) != std::string::npos; };
    const std::string hardware = r.at("hw");
    if (r.at("step_s").empty() || !r.at("ep").empty()) continue;
    Run run{.gpus = whole(r, "gpus"), .is_published = true};
    run.gpu = hardware == "A100-40"          ? "a100-40"
              : hardware.starts_with("A100") ? "a100"
              : hardware.starts_with("H100") ? "h100"
              : hardware.starts_with("H200") ? "h200"
              : hardware.starts_with("B200") ? "b200"
                                             : "gb200";
    if (hardware.find("500W") != std::string::npos) run.power = 0.85;
    if (has("SC21") || has("2205.05198") || has("2201.11990") || has("f2e5db402c")) {
      if (whole(r, "zero") == 3) continue;  // DeepSpeed, without overlap
      run.source = "Megatron A100";
      run.software = "megatron-2021";
    } else if (has("mosaicml")) {
      run.source = "MosaicML FSDP " + std::string(run.gpu.starts_with("a100") ? "A100" : "H100");
      run.software = "fsdp";
    } else if (has("torchtitan") || has("pytorch/ao") || has("fms-fsdp")) {
      run.source = "torchtitan + fms-fsdp";
      run.software = "fsdp";
    } else if (has("SimuMax")) {
      run.source = "SimuMax B200";
      run.software = "megatron, no overlap";  // of tensor parallelism
    } else if (has("nanotron")) {
      continue;  // the playbook has many more
    } else if (has("dgxc") || has("NeMo") || has("Megatron")) {
      if (has("maxtext") || has("paxml")) continue;  // JAX
      run.source = run.gpu == "h100" ? "NeMo + Megatron H100" : "NeMo + Megatron GB200";
      run.software = "megatron";
    } else {
      continue;  // single-GPU trainers, and one of 16,384 GPUs
    }
    StepWork& w = run.work;
    w.layers = whole(r, "layers");
    w.hidden = whole(r, "hidden");
    w.heads = whole(r, "heads");
    w.kv_heads = whole(r, "kv_heads", static_cast<int>(w.heads));
    w.head_dim = w.hidden / w.heads;
    w.mlp_width = whole(r, "ffn");
    w.mlp_matrices = whole(r, "mlp_mats");
    w.vocab = whole(r, "vocab");
    w.tied = whole(r, "tied") != 0;
    w.seq_len = whole(r, "seq");
    w.zero = whole(r, "zero");
    w.cp = whole(r, "cp");
    set_layout(w, r, "dp", "tp", "pp");
    const int stages = whole(r, "vpp");
    if (stages > 1 && w.pp > 1) {
      w.schedule = "interleaved-1f1b";
      w.virtual_stages = stages;
    }
    w.sequence_parallel = r.at("seq_par") == "yes";
    // torchtitan: the part of the batch of a rank, which a pipeline cuts into samples.
    w.micro_batch = run.software == "fsdp" && w.pp > 1 ? 1 : std::max(1, whole(r, "micro_batch"));
    w.reshards = w.pp == 1;
    w.microbatches = std::max<std::int64_t>(1, whole(r, "global_batch") / (w.dp * w.micro_batch));
    const std::string& recompute = r.at("recompute");
    if (recompute == "full") w.recompute = config::Recompute::full;
    if (recompute.starts_with("selective(attn")) w.recompute = config::Recompute::selective;
    const std::string& precision = r.at("precision");
    w.fp8 = precision.find("fp8") != std::string::npos || precision.find("fp4") != std::string::npos;
    run.group = r.at("model") + " x " + r.at("gpus");
    run.seconds = number(r, "step_s");
    run.memory = number(r, "mem_gib") * 1073741824.0;
    const double batch = w.tokens_per_step() / static_cast<double>(w.seq_len);
    if (std::abs(batch / number(r, "global_batch") - 1) < 0.05 && w.gpus() == run.gpus) out.push_back(run);
  }
}

/// Our own, on one GPU (docs/performance.md).
void add_own(std::vector<Run>& out) {
  for (const Record& r : read_csv(std::string(TRIREME_SOURCE_DIR) + "/bench/measured_h200.csv")) {
    Run run{.source = "trireme H200", .group = r.at("name"), .gpu = "h200", .software = "trireme"};
    StepWork& w = run.work;
    for (const auto& [name, member] : {std::pair{"layers", &StepWork::layers},
                                       {"hidden", &StepWork::hidden},
                                       {"heads", &StepWork::heads},
                                       {"kv_heads", &StepWork::kv_heads},
                                       {"head_dim", &StepWork::head_dim},
                                       {"mlp", &StepWork::mlp_width},
                                       {"mlp_matrices", &StepWork::mlp_matrices},
                                       {"vocab", &StepWork::vocab},
                                       {"experts", &StepWork::experts},
                                       {"experts_per_token", &StepWork::experts_per_token},
                                       {"expert_width", &StepWork::expert_width},
                                       {"seq", &StepWork::seq_len},
                                       {"micro_batch", &StepWork::micro_batch},
                                       {"microbatches", &StepWork::microbatches}})
      w.*member = whole(r, name);
    w.tied = whole(r, "tied") != 0;
    w.recompute = config::recompute_of(r.at("recompute"));
    w.fp8 = whole(r, "fp8") != 0;
    split_evenly(w);
    run.seconds = w.tokens_per_step() / number(r, "tok_s");
    out.push_back(run);
  }
}

struct Errors {
  std::size_t runs = 0;
  double median = 0, signed_median = 0, p90 = 0, mean = 0;
};

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<std::size_t>(q * static_cast<double>(values.size())))];
}

Errors errors_of(const std::vector<const Run*>& runs, const Constants& constants) {
  std::vector<double> all, sizes;
  double sum = 0;
  for (const Run* run : runs) {
    all.push_back(run->error(constants));
    sizes.push_back(std::abs(all.back()));
    sum += sizes.back();
  }
  return {runs.size(), quantile(sizes, 0.5), quantile(all, 0.5), quantile(sizes, 0.9),
          sum / static_cast<double>(std::max<std::size_t>(1, runs.size()))};
}

void print_errors(const std::vector<const Run*>& runs, const Constants& constants) {
  std::map<std::string, std::vector<const Run*>> by_source;
  for (const Run* run : runs) by_source[run->source].push_back(run);
  for (const Run* run : runs)
    if (run->is_published) by_source["published_results.csv"].push_back(run);
  std::printf("%-24s %5s %8s %8s %8s %8s\n", "source", "runs", "median", "signed", "mean", "p90");
  for (const auto& [source, its] : by_source) {
    const Errors e = errors_of(its, constants);
    std::printf("%-24s %5zu %7.1f%% %+7.1f%% %7.1f%% %7.1f%%\n", source.c_str(), e.runs, 100 * e.median,
                100 * e.signed_median, 100 * e.mean, 100 * e.p90);
  }
}

double rank_correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
    std::vector<double> out(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) out[order[i]] = static_cast<double>(i);
    return out;
  };
  const std::vector<double> a = ranks(x), b = ranks(y);
  const double mean = (static_cast<double>(a.size()) - 1) / 2;
  double ab = 0, aa = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
  }
  return aa > 0 ? ab / aa : 1;
}

void print_memory(const std::vector<const Run*>& runs, const Constants& constants) {
  std::map<std::string, std::vector<double>> by_source;
  for (const Run* run : runs) {
    if (run->memory == 0) continue;
    const TrainerMemory memory = predict_trainer_memory(run->work, constants.software.at(run->software));
    by_source[run->source].push_back(memory.total() / run->memory - 1);
  }
  std::printf("%-24s %5s %8s %8s %8s %8s\n", "memory", "runs", "median", "signed", "lowest", "p90");
  for (auto& [source, errors] : by_source) {
    std::vector<double> sizes;
    for (const double e : errors) sizes.push_back(std::abs(e));
    std::printf("%-24s %5zu %7.1f%% %+7.1f%% %+7.1f%% %7.1f%%\n", source.c_str(), errors.size(),
                100 * quantile(sizes, 0.5), 100 * quantile(errors, 0.5), 100 * quantile(errors, 0),
                100 * quantile(sizes, 0.9));
  }
}

/// Whether layouts that did not run are told from those that did: they ran out of memory, or did not start for another
/// reason, which the data do not say.
void print_failed(const std::vector<const Run*>& runs, const std::vector<Run>& failed, const Constants& constants) {
  const auto memory = [&](const Run& run) {
    return predict_trainer_memory(run.work, constants.software.at(run.software));
  };
  const double limit = constants.gpus.at("h100").memory_bytes;
  int finished = 0, wrongly = 0, flagged = 0, states = 0;
  for (const Run* run : runs) {
    if (run->source != "playbook") continue;
    ++finished;
    if (memory(*run).total() > limit) ++wrongly;
  }
  for (const Run& run : failed) {
    if (memory(run).total() > limit) ++flagged;
    if (memory(run).states > limit) ++states;
  }
  std::printf(
      "playbook: %d of %d runs that finished are predicted not to fit (%.1f %%), %d of %zu that failed (%.0f %%)\n",
      wrongly, finished, 100.0 * wrongly / std::max(1, finished), flagged, failed.size(),
      100.0 * flagged / static_cast<double>(std::max<std::size_t>(1, failed.size())));
  std::printf("          of those that failed, %d have weights and states that alone do not fit: all are predicted\n",
              states);
}

/// Of each cell (model x hosts) of the playbook.
void print_choices(const std::vector<const Run*>& runs, const Constants& constants) {
  std::map<std::string, std::vector<const Run*>> cells;
  for (const Run* run : runs)
    if (run->source == "playbook") cells[run->group].push_back(run);
  std::vector<double> correlations, reached;
  int in_first_three = 0, counted = 0;
  for (const auto& [cell, its] : cells) {
    if (its.size() < 5) continue;
    ++counted;
    std::vector<double> measured, predicted;
    for (const Run* run : its) {
      measured.push_back(run->work.tokens_per_step() / run->seconds);
      predicted.push_back(run->work.tokens_per_step() / run->predicted(constants));
    }
    correlations.push_back(rank_correlation(measured, predicted));
    const std::size_t best = static_cast<std::size_t>(std::ranges::max_element(measured) - measured.begin());
    const std::size_t first = static_cast<std::size_t>(std::ranges::max_element(predicted) - predicted.begin());
    reached.push_back(measured[first] / measured[best]);
    if (std::ranges::count_if(predicted, [&](double x) { return x > predicted[best]; }) < 3) ++in_first_three;
  }
  std::printf(
      "%d cells: rank correlation %.2f (median), the measured best among the first three in %.0f %%, the first "
      "choice reaches %.1f %% of the best (median)\n",
      counted, quantile(correlations, 0.5), 100.0 * in_first_three / std::max(1, counted),
      100 * quantile(reached, 0.5));
}

std::vector<FittedConstant> fitted_constants(Constants& c) {
  std::vector<FittedConstant> out;
  const auto reach = [&](const char* name, double Reach::* member, double low, double high) {
    out.push_back({name, &(c.reach.*member), low, high});
  };
  reach("half_rows", &Reach::half_rows, 10, 3000);
  reach("half_columns", &Reach::half_columns, 10, 2000);
  reach("attention", &Reach::attention, 0.1, 0.9);
  reach("link", &Reach::link, 0.4, 0.95);
  reach("step_s", &Reach::step_s, 1e-6, 1e-4);
  reach("network_step_s", &Reach::network_step_s, 1e-6, 1e-3);
  reach("fp8_gain", &Reach::fp8_gain, 1.1, 2);
  for (const char* gpu : {"a100", "h100", "b200"})
    out.push_back({text(gpu, " efficiency"), &c.gpus.at(gpu).product_efficiency, 0.4, 0.98});
  const auto software = [&](const char* name, const char* what, double Software::* member, double low, double high) {
    out.push_back({text(name, " ", what), &(c.software.at(name).*member), low, high});
  };
  software("nanotron", "layer_bytes", &Software::layer_bytes, 40, 300);
  software("nanotron", "layer_host_s", &Software::layer_host_s, 1e-4, 1e-2);
  software("nanotron", "pipeline_contention_s", &Software::pipeline_contention_s, 1e-5, 1e-2);
  software("nanotron", "step_host_s", &Software::step_host_s, 1e-3, 0.3);
  software("megatron-deepspeed", "layer_bytes", &Software::layer_bytes, 40, 400);
  software("megatron-deepspeed", "layer_host_s", &Software::layer_host_s, 1e-4, 1e-2);
  software("megatron", "layer_bytes", &Software::layer_bytes, 20, 300);
  software("megatron", "tensor_parallel_overlap", &Software::tensor_parallel_overlap, 0.1, 0.95);
  software("megatron-deepspeed", "score_bytes", &Software::score_bytes, 5, 100);
  software("trireme", "layer_bytes", &Software::layer_bytes, 20, 300);
  software("trireme", "attention_speed", &Software::attention_speed, 0.5, 3);
  software("fsdp", "layer_bytes", &Software::layer_bytes, 20, 300);
  return out;
}

std::vector<FittedConstant> fitted_memory(Constants& c) {
  std::vector<FittedConstant> out;
  const auto software = [&](const char* name, const char* what, double Software::* member, double low, double high) {
    out.push_back({text(name, " ", what), &(c.software.at(name).*member), low, high});
  };
  for (const char* name : {"nanotron", "fsdp"}) {
    software(name, "activations_between", &Software::activations_between, 2, 60);
    software(name, "activations_of_mlp", &Software::activations_of_mlp, 2, 30);
    software(name, "hidden_at_head", &Software::hidden_at_head, 1, 100);
    software(name, "logits_kept", &Software::logits_kept, 1, 30);
    software(name, "process_bytes", &Software::process_bytes, 5e8, 8e9);
  }
  software("nanotron", "activations_of_heads", &Software::activations_of_heads, 1, 50);
  software("nanotron", "kept_gradient_bytes", &Software::kept_gradient_bytes, 2, 10);
  return out;
}

double memory_misfit(const std::vector<const Run*>& runs, const Constants& constants) {
  double sum = 0;
  for (const Run* run : runs) {
    if (run->memory == 0) continue;
    const double size = std::abs(
        std::log(predict_trainer_memory(run->work, constants.software.at(run->software)).total() / run->memory));
    sum += (size < 0.3 ? size : 0.3 + (size - 0.3) / 20) * (run->source == "playbook" ? 1 : 20);
  }
  return sum;
}

/// Sources count alike, whatever their number of runs, but small ones less.
double misfit(const std::vector<const Run*>& runs, const Constants& constants) {
  std::map<std::string, std::pair<double, double>> by_source;
  for (const Run* run : runs) {
    const double ratio = std::log(run->predicted(constants) / run->seconds), size = std::abs(ratio);
    auto& [sum, count] = by_source[run->source];
    sum += size < 0.3 ? size : 0.3 + (size - 0.3) / 20;
    count += 1;
  }
  double total = 0, weights = 0;
  for (const auto& [source, both] : by_source) {
    const double weight = std::min(1.0, std::sqrt(both.second / 200));
    total += weight * both.first / both.second;
    weights += weight;
  }
  return total / weights;
}

/// The GPUs that are like another one have its efficiency; trainers of a family share what is not fitted.
void share(Constants& c) {
  c.gpus.at("a100-40").product_efficiency = c.gpus.at("a100").product_efficiency;
  c.gpus.at("h200").product_efficiency = c.gpus.at("h100").product_efficiency;
  c.gpus.at("gb200").product_efficiency = c.gpus.at("b200").product_efficiency;
  Software old = c.software.at("megatron-deepspeed");
  old.name = "megatron-2021";
  c.software["megatron-2021"] = old;
  Software plain = c.software.at("megatron");
  plain.tensor_parallel_overlap = 0;
  c.software["megatron, no overlap"] = plain;
}

/// By half of the runs.
Constants fitted_to(const std::vector<const Run*>& runs, Constants constants) {
  share(constants);
  const auto by = [&](double (*misfit_of)(const std::vector<const Run*>&, const Constants&)) {
    return [&constants, &runs, misfit_of] {
      share(constants);
      return misfit_of(runs, constants);
    };
  };
  fit_constants(fitted_constants(constants), by(misfit));
  fit_constants(fitted_memory(constants), by(memory_misfit));
  share(constants);
  return constants;
}

int run(const std::string& folder, const std::string& mode) {
  std::vector<Run> all, failed;
  add_playbook(folder + "/planner/playbook_runs.csv", all);
  add_playbook(folder + "/planner/playbook_failed.csv", failed);
  add_vtrain(folder, "vtrain_single_node.csv", "vTrain one host", all);
  add_vtrain(folder, "vtrain_multi_node.csv", "vTrain several hosts", all);
  add_published(folder, all);
  add_own(all);
  Constants constants = present_constants();
  share(constants);
  std::map<std::string, int> groups;  // by source, in the order in which they are seen
  std::vector<const Run*> every, fitted, held;
  std::map<std::string, std::map<std::string, int>> numbers;
  for (const Run& each : all) {
    auto& of_source = numbers[each.source];
    const int group = of_source.try_emplace(each.group, static_cast<int>(of_source.size())).first->second;
    every.push_back(&each);
    (group % 2 == 0 ? fitted : held).push_back(&each);
  }
  if (mode == "--fit") {
    constants = fitted_to(fitted, constants);
    for (const std::vector<FittedConstant>& list : {fitted_constants(constants), fitted_memory(constants)})
      for (const FittedConstant& one : list) std::printf("%-40s %.4g\n", one.name.c_str(), *one.value);
    std::printf("\nfitted to %zu runs:\n", fitted.size());
    print_errors(fitted, constants);
    std::printf("\nthe other groups, %zu runs:\n", held.size());
    print_errors(held, constants);
    print_memory(held, constants);
    print_choices(held, constants);
  }
  if (mode == "--leave-out") {
    std::printf("each source by constants that were fitted without it:\n");
    std::map<std::string, std::vector<const Run*>> by_source;
    for (const Run* each : every) by_source[each->source].push_back(each);
    for (const auto& [source, its] : by_source) {
      std::vector<const Run*> others;
      for (const Run* each : every)
        if (each->source != source) others.push_back(each);
      print_errors(its, fitted_to(others, present_constants()));
    }
    return 0;
  }
  if (mode == "--rows") {
    std::printf("source,group,gpus,dp,tp,pp,cp,zero,micro_batch,microbatches,seconds,predicted\n");
    for (const Run* each : every)
      std::printf("%s,%s,%d,%d,%d,%d,%d,%d,%lld,%lld,%.4f,%.4f\n", each->source.c_str(), each->group.c_str(),
                  each->gpus, each->work.dp, each->work.tp, each->work.pp, each->work.cp, each->work.zero,
                  static_cast<long long>(each->work.micro_batch), static_cast<long long>(each->work.microbatches),
                  each->seconds, each->predicted(constants));
    return 0;
  }
  std::printf("\nall:\n");
  print_errors(every, constants);
  print_memory(every, constants);
  print_failed(every, failed, constants);
  print_choices(every, constants);
  return 0;
}

}  // namespace
}  // namespace trireme::planner

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: planner_accuracy DATA [--fit | --leave-out | --rows]\n";
    return 2;
  }
  return trireme::planner::run(argv[1], argc > 2 ? argv[2] : "");
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
