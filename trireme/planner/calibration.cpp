#include "trireme/planner/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <variant>

#include "trireme/base/error.hpp"
#include "trireme/config/settings/toml_file.hpp"
#include "trireme/planner/fit_constants.hpp"

namespace trireme::planner {
namespace {

/// f(key, value) for every constant of a file.
void for_each_constant(Calibration& c, const std::function<void(const std::string&, double&)>& f) {
  Gpu& gpu = c.machine.gpu;
  for (const auto& [key, value] : {std::pair{"peak_flops", &gpu.peak_flops},
                                   {"peak_fp8_flops", &gpu.peak_fp8_flops},
                                   {"memory_bytes", &gpu.memory_bytes},
                                   {"memory_bandwidth", &gpu.memory_bandwidth},
                                   {"link_bandwidth", &gpu.link_bandwidth},
                                   {"network_bandwidth", &gpu.network_bandwidth},
                                   {"product_efficiency", &gpu.product_efficiency}})
    f(std::string("machine.") + key, *value);
  Reach& reach = c.machine.reach;
  for (const auto& [key, value] : {std::pair{"half_rows", &reach.half_rows},
                                   {"half_columns", &reach.half_columns},
                                   {"half_depth", &reach.half_depth},
                                   {"attention", &reach.attention},
                                   {"memory", &reach.memory},
                                   {"link", &reach.link},
                                   {"network", &reach.network},
                                   {"step_s", &reach.step_s},
                                   {"network_step_s", &reach.network_step_s},
                                   {"fp8_gain", &reach.fp8_gain},
                                   {"fp8_traffic", &reach.fp8_traffic},
                                   {"straggler", &reach.straggler}})
    f(std::string("reach.") + key, *value);
  Software& software = c.software;
  for (const auto& [key, value] : {std::pair{"attention_speed", &software.attention_speed},
                                   {"layer_bytes", &software.layer_bytes},
                                   {"logit_bytes", &software.logit_bytes},
                                   {"optimizer_bytes", &software.optimizer_bytes},
                                   {"layer_host_s", &software.layer_host_s},
                                   {"microbatch_host_s", &software.microbatch_host_s},
                                   {"step_host_s", &software.step_host_s},
                                   {"data_parallel_overlap", &software.data_parallel_overlap},
                                   {"tensor_parallel_overlap", &software.tensor_parallel_overlap}})
    f(std::string("trainer.") + key, *value);
}

/// Those that steps on one kind of machine tell apart.
std::vector<FittedConstant> fitted(Calibration& c) {
  const auto around = [](double value) { return std::pair{value / 100, value * 100}; };
  std::vector<FittedConstant> out;
  const auto add = [&](const char* name, double& value) {
    const auto [low, high] = around(value);
    out.push_back({name, &value, low, high});
  };
  if (c.machine.is_cpu())
    add("peak_flops", c.machine.gpu.peak_flops);
  else
    out.push_back({"product_efficiency", &c.machine.gpu.product_efficiency, 0.2, 1});
  add("memory_bandwidth", c.machine.gpu.memory_bandwidth);
  add("link_bandwidth", c.machine.gpu.link_bandwidth);
  add("half_rows", c.machine.reach.half_rows);
  add("half_columns", c.machine.reach.half_columns);
  add("half_depth", c.machine.reach.half_depth);
  add("attention", c.machine.reach.attention);
  add("step_s", c.machine.reach.step_s);
  add("logit_bytes", c.software.logit_bytes);
  add("optimizer_bytes", c.software.optimizer_bytes);
  add("layer_host_s", c.software.layer_host_s);
  add("microbatch_host_s", c.software.microbatch_host_s);
  add("step_host_s", c.software.step_host_s);
  out.push_back({"data_parallel_overlap", &c.software.data_parallel_overlap, 0.01, 1});
  return out;
}

std::vector<double> errors_of(const std::vector<MeasuredStep>& steps, const Calibration& c) {
  std::vector<double> out;
  for (const MeasuredStep& step : steps) {
    Machine machine = c.machine;
    machine.gpus = step.work.gpus();
    out.push_back(std::abs(std::log(predict_step(step.work, machine, c.software).total() / step.seconds)));
  }
  return out;
}

}  // namespace

Calibration uncalibrated_cpu(int ranks_of_host) {
  Calibration out;
  out.machine.gpu = {.name = "cpu",
                     .peak_flops = 5e10,
                     .memory_bytes = 8e9,
                     .memory_bandwidth = 1e10,
                     .link_bandwidth = 2e9,
                     .network_bandwidth = 1e9,
                     .per_host = ranks_of_host,
                     .product_efficiency = 1};
  out.machine.gpus = ranks_of_host;
  out.machine.reach = {.half_rows = 20, .half_columns = 20, .half_depth = 20, .memory = 1, .link = 1, .step_s = 1e-4};
  out.software = software_named("trireme");
  out.software.attention_speed = 1;
  out.software.layer_host_s = 1e-3;
  out.software.microbatch_host_s = 3e-3;
  out.software.step_host_s = 3e-3;
  return out;
}

Calibration calibrate(const std::vector<MeasuredStep>& steps, Calibration start) {
  const auto misfit = [&] {
    double sum = 0;
    for (const double error : errors_of(steps, start)) sum += error;
    return sum;
  };
  constexpr int kPasses = 12;
  fit_constants(fitted(start), misfit, kPasses);
  return start;
}

double median_error(const std::vector<MeasuredStep>& steps, const Calibration& calibration) {
  std::vector<double> errors = errors_of(steps, calibration);
  if (errors.empty()) return 0;
  std::ranges::sort(errors);
  return std::expm1(errors[errors.size() / 2]);
}

std::string to_toml(Calibration c) {
  std::string out = text("# trireme bench machine\n[machine]\nname = \"", c.machine.gpu.name,
                         "\"\nper_host = ", c.machine.gpu.per_host, "\n");
  std::string section = "machine";
  for_each_constant(c, [&](const std::string& key, double& value) {
    const std::size_t dot = key.find('.');
    if (key.substr(0, dot) != section) out += "[" + (section = key.substr(0, dot)) + "]\n";
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.6e", value);
    out += key.substr(dot + 1) + " = " + digits + "\n";
  });
  return out;
}

Calibration read_calibration(const std::string& path) {
  Calibration out{.machine = {}, .software = software_named("trireme")};
  const config::Settings settings = config::parse_toml(path, config::read_config_file(path));
  std::vector<std::string> used;
  const auto find = [&](const std::string& key) -> const config::Setting& {
    for (const config::Setting& setting : settings)
      if (setting.path == key) {
        used.push_back(key);
        return setting;
      }
    throw ConfigError(text(path, ": ", key, " is missing\n  fix: a file that `trireme bench machine` wrote"));
  };
  const auto wrong = [&](const std::string& key, const char* kind) {
    return ConfigError(text(path, ": ", key, " must be ", kind, "\n  fix: a file that `trireme bench machine` wrote"));
  };
  const auto* const name = std::get_if<std::string>(&find("machine.name").value.data);
  if (name == nullptr) throw wrong("machine.name", "a text");
  out.machine.gpu.name = *name;
  const auto* const per_host = std::get_if<std::int64_t>(&find("machine.per_host").value.data);
  if (per_host == nullptr || *per_host < 1 || *per_host > 1024) throw wrong("machine.per_host", "from 1 to 1024");
  out.machine.gpu.per_host = static_cast<int>(*per_host);
  for_each_constant(out, [&](const std::string& key, double& value) {
    const config::Value& given = find(key).value;
    if (const auto* real_number = std::get_if<double>(&given.data))
      value = *real_number;
    else if (const auto* number = std::get_if<std::int64_t>(&given.data))
      value = static_cast<double>(*number);
    else
      throw wrong(key, "a number");
    if (!std::isfinite(value) || value < 0) throw wrong(key, "a number from 0");
  });
  for (const config::Setting& setting : settings)
    if (std::ranges::find(used, setting.path) == used.end())
      throw ConfigError(text(path, ": ", setting.path, " is no constant of a machine"));
  for (const double value :
       {out.machine.gpu.peak_flops, out.machine.gpu.memory_bandwidth, out.machine.gpu.link_bandwidth,
        out.machine.gpu.network_bandwidth, out.machine.gpu.memory_bytes, out.machine.gpu.product_efficiency,
        out.machine.reach.attention, out.machine.reach.memory, out.machine.reach.link, out.machine.reach.network})
    require<ConfigError>(value > 0, path,
                         ": a bandwidth, speed or size is 0\n  fix: a file that `trireme bench machine` wrote");
  return out;
}

}  // namespace trireme::planner
