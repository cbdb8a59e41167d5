// A small program that runs as ranks, for the tests of launchers and failures. Every launcher must run it unchanged.
//   rank_program [-n N] [--tp T] [--pp P] [--backend B] [--cuda] [--timeout S] [--init-timeout S] [--check MODE]
//                [--hang FOLDER] [--store-file F] [--claim KEY=VALUE] [--max-restarts K]
//                [sum | conformance [SIZE...] | steps SECONDS-OR-FILE | mismatch KIND RANK CALL | mpu PORT [ADDRESS] |
//                 traffic | attempts ACTION...]
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <thread>

#include <ATen/Parallel.h>
#include <unistd.h>

#include "trireme/compat/megatron.hpp"
#include "trireme/runtime/rank/parallel_context.hpp"
#include "trireme/runtime/rank/rank_main.hpp"
#include "trireme/testing/conformance.hpp"
#include "trireme/testing/mismatched_step.hpp"

namespace {

using namespace trireme;

struct Words {
  RankMain main;
  ParallelSizes sizes;
  ContextOptions context{.backend = "gloo"};
  std::string mode = "sum";
  bool on_gpu = false;
  std::vector<std::string> arguments;
};

Words read_words(int argc, char** argv) {
  Words words;
  words.main.words.assign(argv, argv + argc);
  words.main.variables = process_variables();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      require<ConfigError>(i + 1 < argc, word, " needs a value");
      return std::string(argv[++i]);
    };
    if (word == "-n")
      words.main.flags.local_ranks = std::stoi(value());
    else if (word == "--master")
      words.main.flags.master = value();
    else if (word == "--store-file")
      words.main.flags.store_file = value();
    else if (word == "--logs")
      words.main.log_folder = value();
    else if (word == "--max-restarts")
      words.main.max_restarts = std::stoi(value());
    else if (word == "--tp")
      words.sizes.tensor_parallel_size = std::stoi(value());
    else if (word == "--pp")
      words.sizes.pipeline_parallel_size = std::stoi(value());
    else if (word == "--backend")
      words.context.backend = value();
    else if (word == "--cuda")
      words.on_gpu = true;
    else if (word == "--no-shared-memory")
      words.context.shared_memory = false;
    else if (word == "--share-gpu")
      words.context.share_gpu = true;
    else if (word == "--timeout")
      words.context.comm.timeout_s = std::stod(value());
    else if (word == "--init-timeout")
      words.context.comm.init_timeout_s = std::stod(value());
    else if (word == "--deterministic")
      words.context.comm.deterministic = true;
    else if (word == "--check")
      words.context.comm.check = value() == "strict" ? CheckMode::strict : CheckMode::fast;
    else if (word == "--hang")
      words.context.comm.hang_folder = value();
    else if (word == "--claim") {
      const std::string claim = value();
      words.context.fingerprint[claim.substr(0, claim.find('='))] = claim.substr(claim.find('=') + 1);
    } else if (words.arguments.empty() && words.mode == "sum" && word[0] != '-')
      words.mode = word;
    else
      words.arguments.push_back(word);
  }
  return words;
}

/// The line that tests look for; a single write, since launchers interleave the ranks' output.
void say(const std::string& line) {
  const std::string whole = line + "\n";
  [[maybe_unused]] const auto written = write(STDOUT_FILENO, whole.data(), whole.size());
}

void sum(ParallelContext& context) {
  const at::Tensor mine = at::full({1}, context.rank() + 1.0, at::kDouble);
  const double total = context.world_pg().all_reduce(mine).wait().item<double>();
  const Environment& env = context.environment();
  say(text("rank=", context.rank(), " world=", context.world_size(), " local_rank=", env.local_rank, " node=",
           env.node_rank, " sum=", total, " launcher=\"", env.launcher, "\" threads=", at::get_num_threads()));
}

/// Steps of work with one all-reduce each, so that a test can inject a failure at any time. `until`: seconds, or a file
/// whose appearance ends the steps. All ranks end with the same step.
void steps(ParallelContext& context, const std::string& until, bool on_gpu) {
  const at::TensorOptions on = at::TensorOptions(at::kDouble).device(on_gpu ? context.device() : at::Device(at::kCPU));
  const bool by_file = until.find('/') != std::string::npos;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(by_file ? 0 : std::stod(until));
  bool more = true;
  for (std::int64_t step = 1; more; ++step) {
    context.mesh().tag({step, "backward"});
    const bool enough = by_file ? std::filesystem::exists(until) : std::chrono::steady_clock::now() >= end;
    const at::Tensor x = at::full({1024}, enough ? 1.0 : 0.0, on);
    more = context.world_pg().all_reduce(x).wait().sum().item<double>() == 0;  // on a GPU this synchronizes
    context.mesh().end_step();
    if (step == 1) say(text("ready rank=", context.rank(), " pid=", getpid()));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

/// Large calls of each kind, and the bytes that their group has counted, to compare with network counters.
void traffic(ParallelContext& context) {
  Group& group = context.world_pg();
  const at::Tensor large = at::ones({16 << 20}), part = large.narrow(0, 0, large.numel() / group.size()).contiguous();
  for (int i = 0; i < 2; ++i) {
    group.all_reduce(large).wait();
    group.reduce_scatter(large).wait();
    group.all_gather(part).wait();
  }
  for (const Op op : {Op::all_reduce, Op::reduce_scatter, Op::all_gather})
    say(text("rank=", context.rank(), " counted ", name(op), " ", group.traffic(op).bytes));
}

void mismatch(ParallelContext& context, const std::string& kind, int who, int at) {
  MismatchedStep(context.mesh(), kind, who, at).run();
  say(text("rank=", context.rank(), " did not notice"));
}

/// What the last rank does in attempt 0, 1, ... of the job; later attempts do as the last one named. `ok`, `kill`,
/// `exit=CODE`, and `commit+...`: after rank 0 has committed a checkpoint.
void attempts(ParallelContext& context, const std::vector<std::string>& actions) {
  const auto attempt = static_cast<std::size_t>(context.environment().attempt);
  std::string action = actions.at(std::min(attempt, actions.size() - 1));
  say(text("rank=", context.rank(), " attempt=", attempt, " job=", context.environment().job_id));
  if (action.starts_with("commit+")) {
    action = action.substr(7);
    if (context.rank() == 0) context.world().recorder().checkpoint_committed();
  }
  context.world_pg().barrier().wait();
  const bool acts = context.rank() == context.world_size() - 1;
  if (acts && action == "kill") ::raise(SIGKILL);
  if (acts && action.starts_with("exit=")) ::_exit(std::stoi(action.substr(5)));
  if (action != "ok") std::this_thread::sleep_for(std::chrono::seconds(60));
}

void run(const Words& words, const Environment& env) {
  ParallelSizes sizes = words.sizes;
  sizes.data_parallel_size = env.world_size / (sizes.tensor_parallel_size * sizes.pipeline_parallel_size);
  if (words.mode == "mpu") {
    const compat::MPU mpu(env.rank, env.world_size, sizes.tensor_parallel_size, sizes.pipeline_parallel_size,
                          words.arguments.size() > 1 ? words.arguments[1] : "127.0.0.1",
                          std::stoi(words.arguments.at(0)), "gloo", env.secret);
    say(text("rank=", env.rank, " tp=", mpu.get_tensor_model_parallel_group().str(),
             " dp=", mpu.get_data_parallel_group().str(), " pp=", mpu.get_pipeline_model_parallel_group().str()));
    return;
  }
  ParallelContext context(sizes, env, words.main.variables, words.context);
  if (words.mode == "sum") {
    sum(context);
  } else if (words.mode == "conformance") {
    at::set_num_threads(1);
    std::vector<std::int64_t> elements;
    for (const std::string& word : words.arguments) elements.push_back(std::stoll(word));
    Conformance suite(context.world_pg(), words.on_gpu ? context.device() : at::Device(at::kCPU));
    const int checked = elements.empty() ? suite.run() : suite.run(elements);
    say(text("rank=", context.rank(), " conformance of ", context.world_pg().str(), ": ", checked, " results right"));
  } else if (words.mode == "mismatch") {
    mismatch(context, words.arguments.at(0), std::stoi(words.arguments.at(1)), std::stoi(words.arguments.at(2)));
  } else if (words.mode == "traffic") {
    traffic(context);
  } else if (words.mode == "attempts") {
    attempts(context, words.arguments);
  } else if (words.mode == "steps") {
    steps(context, words.arguments.at(0), words.on_gpu);
  } else {
    throw ConfigError("unknown mode " + words.mode);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Words words;
  try {
    words = read_words(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << "error: " << e.what() << "\n";
    return static_cast<int>(ExitCode::config);
  }
  return rank_main(words.main, [&](const Environment& env) { run(words, env); });
}
