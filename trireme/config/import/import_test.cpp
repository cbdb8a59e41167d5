#include "trireme/config/import/import.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/import/assumed.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// Imports a file of testdata/, loads the result and checks it (with a model added if the file has none).
LoadedConfig imported(const std::string& name, Framework from, const Pairs& expected, std::vector<std::string>& notes,
                      const Flags& flags = {}, const Started& started = {}) {
  const Imported result = import_config(name, testdata(name));
  EXPECT_EQ(result.from, from);
  notes = result.notes;
  for (const std::string& note : result.harmless) notes.push_back("harmless: " + note);
  LoadedConfig loaded = load_config_text("imported.toml", result.toml, flags);
  EXPECT_EQ(message_of<ConfigError>([&] { check_config(loaded, started); }), "no error") << result.toml;
  const std::map<std::string, std::string> values = values_of(loaded.config);
  for (const auto& [key, value] : expected) EXPECT_THAT(values, Contains(Pair(key, value)));
  return loaded;
}

TEST(Import, Nanotron) {
  std::vector<std::string> notes;
  imported("nanotron_tiny_llama.yaml", Framework::nanotron,
           {{"run.name", R"("tiny_llama_%date_%jobid")"},
            {"run.dir", R"("checkpoints")"},
            {"run.seed", "42"},
            {"model.hidden_size", "16"},
            {"model.num_hidden_layers", "2"},
            {"model.intermediate_size", "64"},
            {"model.vocab_size", "256"},
            {"model.norm_eps", "1e-05"},
            {"model.initializer_range", "0.025"},
            {"model.tie_word_embeddings", "true"},
            {"model.dtype", R"("bfloat16")"},
            {"tokenizer.path", R"("robot-test/dummy-tokenizer-wordlevel")"},
            {"data.0.start_step", "1"},
            {"data.0.sources.0.path", R"("data/fineweb")"},
            {"data.0.sources.0.weight", "0.7"},
            {"data.0.sources.1.path", R"("data/code")"},
            {"data.0.sources.1.weight", "0.3"},
            {"data.1.start_step", "11"},
            {"data.1.sources.0.path", R"("synthetic")"},
            {"training.steps", "15"},
            {"training.seq_len", "256"},
            {"training.micro_batch_size", "2"},
            {"training.grad_accum", "2"},
            {"training.global_batch_size", "8"},
            {"training.max_norm", "1.0"},
            {"optimizer.name", R"("adamw")"},
            {"optimizer.lr", "3e-04"},
            {"optimizer.betas", "[0.9, 0.95]"},
            {"optimizer.eps", "1e-08"},
            {"optimizer.weight_decay", "0.01"},
            {"optimizer.no_decay", "[]"},
            {"lr_scheduler.warmup_steps", "2"},
            {"lr_scheduler.decay", R"("cosine")"},
            {"lr_scheduler.decay_steps", "13"},
            {"lr_scheduler.min_lr", "1e-05"},
            {"parallelism.dp", "2"},
            {"parallelism.tp", "2"},
            {"parallelism.pp", "2"},
            {"parallelism.ep", "1"},
            {"parallelism.zero", "0"},
            {"parallelism.sequence_parallel", "true"},
            {"parallelism.pp_schedule", R"("1f1b")"},
            {"checkpoint.interval", "10"},
            {"checkpoint.resume", R"("auto")"},
            {"metrics.interval", "1"}},
           notes, {}, {.ranks = 8});
  EXPECT_THAT(notes, Contains("harmless: general.project = \"debug\" (line 34): no counterpart"));
  EXPECT_THAT(notes, Contains("data_stages.1.data.dataset.hf_dataset_or_datasets = \"stas/openwebtext-10k\" (line 23): "
                              "no counterpart"));
  EXPECT_THAT(notes, Contains("data stage 1 has no token files: \"synthetic\" is used instead"));
  EXPECT_THAT(
      notes,
      Contains("harmless: model.model_config.initializer_range = 0.02 (line 54): nanotron draws initial weights by "
               "model.init_method.std"));
  EXPECT_THAT(notes, Contains("harmless: parallelism.tp_linear_async_communication = true (line 93): no counterpart"));
}

TEST(Import, NanotronsOlderMapOfFolders) {
  const Imported result = import_config("x.yaml", R"(
data_stages:
- start_training_step: 1
  data:
    dataset:
      dataset_folder:
        data/a: 0.2
        data/b.v2: 0.8
)");
  const LoadedConfig loaded = load(result.toml);
  ASSERT_EQ(loaded.config.data.size(), 1U);
  ASSERT_EQ(loaded.config.data[0].sources.size(), 2U);
  EXPECT_EQ(loaded.config.data[0].sources[1].path, "data/b.v2");
  EXPECT_EQ(loaded.config.data[0].sources[1].weight, 0.8);
  EXPECT_THAT(result.notes, ElementsAre("no model in this file: set model.preset or its sizes"));
}

TEST(Import, Torchtitan) {
  std::vector<std::string> notes;
  const LoadedConfig loaded = imported("torchtitan_llama3_8b.toml", Framework::torchtitan,
                                       {{"run.name", R"("Llama 3 8B training")"},
                                        {"run.dir", R"("./outputs")"},
                                        {"model.preset", R"("llama3.1-8b")"},
                                        {"model.dtype", R"("bfloat16")"},
                                        {"tokenizer.path", R"("./assets/hf/Llama-3.1-8B")"},
                                        {"data.0.sources.0.path", R"("c4")"},
                                        {"training.steps", "1000"},
                                        {"training.seq_len", "8192"},
                                        {"training.micro_batch_size", "1"},
                                        {"optimizer.name", R"("adamw")"},
                                        {"optimizer.lr", "3e-04"},
                                        {"optimizer.no_decay", "[]"},
                                        {"lr_scheduler.warmup_steps", "200"},
                                        {"lr_scheduler.decay", R"("linear")"},
                                        {"lr_scheduler.decay_steps", "800"},
                                        {"parallelism.dp", "8"},
                                        {"parallelism.replicate", "2"},
                                        {"parallelism.zero", "3"},
                                        {"parallelism.tp", "2"},
                                        {"activation_checkpoint.mode", R"("selective")"},
                                        {"checkpoint.interval", "500"},
                                        {"metrics.interval", "10"},
                                        {"profiler.dir", R"("profile_trace")"}},
                                       notes, {}, {.ranks = 16});
  EXPECT_NEAR(loaded.config.lr_scheduler.min_lr, 3e-5, 1e-12);
  EXPECT_EQ(count_parameters(loaded.config.model).total(), 8'030'261'248);
  EXPECT_THAT(notes, Contains("harmless: profiling.profile_freq = 100 (line 8): no counterpart"));
  EXPECT_THAT(notes,
              Contains("harmless: activation_checkpoint.selective_ac_option = \"op\" (line 57): no counterpart"));
}

TEST(Import, TorchtitanWithoutAPreset) {
  const Imported result = import_config("x.toml",
                                        "[model]\nname = \"llama3\"\nflavor = \"9B\"\n"
                                        "[training]\nglobal_batch_size = -1\n");
  EXPECT_THAT(result.notes, Contains("model llama3/9B: no preset of that name; set the sizes under [model]"));
  LoadedConfig loaded = load(result.toml);
  EXPECT_EQ(loaded.config.training.global_batch_size, 0);
  EXPECT_EQ(loaded.config.training.micro_batch_size, 8);
  EXPECT_EQ(loaded.config.lr_scheduler.warmup_steps, 200);
}

TEST(Import, DeepSpeed) {
  std::vector<std::string> notes;
  imported("deepspeed_zero3.json", Framework::deepspeed,
           {{"model.dtype", R"("bfloat16")"},
            {"training.steps", "5000"},
            {"training.micro_batch_size", "4"},
            {"training.grad_accum", "8"},
            {"training.global_batch_size", "256"},
            {"training.max_norm", "1.0"},
            {"optimizer.name", R"("adamw")"},
            {"optimizer.betas", "[0.9, 0.95]"},
            {"optimizer.lr", "0.001"},  // DeepSpeed's default peak
            {"lr_scheduler.warmup_steps", "200"},
            {"lr_scheduler.warmup_shape", R"("log")"},
            {"lr_scheduler.decay", R"("linear")"},
            {"parallelism.zero", "3"},
            {"parallelism.overlap_comm", "true"},
            {"parallelism.contiguous_gradients", "true"},
            {"parallelism.bucket_mb", "2000.0"},
            {"parallelism.max_live_parameters", "1000000000"},
            {"parallelism.max_reuse_distance", "500000000"},
            {"parallelism.persistence_threshold", "100000"},
            {"metrics.interval", "20"}},
           notes, {"--model.preset", "gpt2"}, {.ranks = 8});
  EXPECT_THAT(notes, Contains("optimizer.params.weight_decay = \"auto\": \"auto\" is filled in by the caller"));
  EXPECT_THAT(notes,
              Contains("harmless: zero_optimization.stage3_gather_16bit_weights_on_model_save = true: no counterpart"));
  EXPECT_THAT(notes, Contains("no model in this file: set model.preset or its sizes"));
}

TEST(Import, HfTrainer) {
  std::vector<std::string> notes;
  imported("hf_trainer.json", Framework::hf_trainer,
           {{"run.name", R"("sft")"},
            {"run.dir", R"("out")"},
            {"run.seed", "7"},
            {"model.dtype", R"("bfloat16")"},
            {"training.steps", "2000"},
            {"training.micro_batch_size", "4"},
            {"training.grad_accum", "8"},
            {"training.max_norm", "0.5"},
            {"optimizer.lr", "2e-05"},
            {"optimizer.betas", "[0.9, 0.99]"},
            {"optimizer.weight_decay", "0.0"},
            {"lr_scheduler.warmup_steps", "60"},
            {"lr_scheduler.decay", R"("cosine")"},
            {"parallelism.zero", "3"},
            {"activation_checkpoint.mode", R"("full")"},
            {"checkpoint.interval", "250"},
            {"checkpoint.keep", "3"},
            {"metrics.interval", "5"},
            {"comm.timeout_s", "1800.0"}},
           notes, {"--model.preset", "gpt2"});
  EXPECT_THAT(notes, Contains("harmless: report_to = \"wandb\": no counterpart"));
}

TEST(Import, Megatron) {
  std::vector<std::string> notes;
  const LoadedConfig loaded = imported("megatron_llama.sh", Framework::megatron,
                                       {{"run.dir", R"("runs")"},
                                        {"model.model_type", R"("llama")"},
                                        {"model.hidden_size", "4096"},
                                        {"model.num_key_value_heads", "8"},
                                        {"model.max_position_embeddings", "8192"},
                                        {"model.tie_word_embeddings", "false"},
                                        {"model.resid_pdrop", "0.0"},
                                        {"model.dtype", R"("bfloat16")"},
                                        {"tokenizer.path", R"("tok.model")"},
                                        {"data.0.sources.0.path", R"("/data/tokens/web_text_document")"},
                                        {"data.0.sources.0.weight", "0.3"},
                                        {"data.0.sources.1.path", R"("/data/tokens/code_text_document")"},
                                        {"training.steps", "5000"},
                                        {"training.seq_len", "8192"},
                                        {"training.micro_batch_size", "1"},
                                        {"training.global_batch_size", "128"},
                                        {"optimizer.betas", "[0.9, 0.95]"},
                                        {"optimizer.weight_decay", "0.1"},
                                        {"lr_scheduler.decay", R"("cosine")"},
                                        {"lr_scheduler.warmup_steps", "100"},
                                        {"parallelism.tp", "2"},
                                        {"parallelism.pp", "2"},
                                        {"parallelism.virtual_stages", "2"},
                                        {"parallelism.pp_schedule", R"("interleaved-1f1b")"},
                                        {"parallelism.zero", "1"},
                                        {"parallelism.sequence_parallel", "true"},
                                        {"checkpoint.interval", "500"},
                                        {"comm.timeout_s", "300.0"}},
                                       notes, {}, {.ranks = 16});
  EXPECT_EQ(count_parameters(loaded.config.model).total(), 8'030'261'248);
  EXPECT_THAT(notes, ElementsAre("--save = $CHECKPOINT_PATH (line 63): only a shell knows its value",
                                 "harmless: --nproc_per_node = 8 (line 14): no counterpart",
                                 "harmless: --nnodes = 1 (line 15): no counterpart",
                                 "harmless: --master_addr = localhost (line 16): no counterpart"));
}

/// Missing flags have Megatron's defaults, not ours.
TEST(Import, MegatronsSilence) {
  const std::string sizes =
      "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257 "
      "--max-position-embeddings 1024 --seq-length 1024 --micro-batch-size 4";
  LoadedConfig gpt = load_good(import_config("run.sh", "train " + sizes).toml);
  const std::map<std::string, std::string> values = values_of(gpt.config);
  for (const auto& [key, value] : Pairs{{"model.model_type", R"("gpt2")"},
                                        {"model.hidden_act", R"("gelu")"},
                                        {"model.tie_word_embeddings", "true"},
                                        {"model.embd_pdrop", "0.1"},
                                        {"model.dtype", R"("float32")"},
                                        {"model.intermediate_size", "3072"},
                                        {"optimizer.betas", "[0.9, 0.999]"},
                                        {"optimizer.weight_decay", "0.01"},
                                        {"lr_scheduler.decay", R"("linear")"},
                                        {"parallelism.zero", "0"},
                                        {"parallelism.sequence_parallel", "false"}})
    EXPECT_THAT(values, Contains(Pair(key, value)));
  // Padded from 50257 to a multiple of 128.
  EXPECT_EQ(gpt.config.model.vocab_size, 50'304);
  EXPECT_EQ(count_parameters(gpt.config.model).total(), 124'439'808 + 47 * 768);
  const Imported events = import_config("run.sh", "train " + sizes + " --save a --tensorboard-dir b");
  EXPECT_THAT(events.notes, ElementsAre("--tensorboard-dir = b (line 1): event files are written to the run's folder"));
  EXPECT_EQ(load(events.toml).config.run.dir, "a");
  const Imported llama =
      import_config("run.sh", "train " + sizes + " --swiglu --position-embedding-type rope --normalization LayerNorm");
  EXPECT_EQ(load_good(llama.toml).config.model.intermediate_size, 2048);
  EXPECT_THAT(
      llama.notes,
      ElementsAre("--normalization = LayerNorm (line 1): no counterpart",
                  "--swiglu without --normalization = RMSNorm: Megatron would use LayerNorm, our llama has RMSNorm",
                  "--swiglu without --disable-bias-linear: Megatron would have biases, our llama has none"));
  EXPECT_THAT(import_config("run.sh", "train " + sizes + " --swiglu").notes,
              Contains("--swiglu without --position-embedding-type = rope: Megatron would use learned positions, our "
                       "llama has RoPE"));
}

TEST(Import, HfConfigs) {
  for (const std::string folder : {"gpt2", "llama3.2-1b", "mistral-7b", "qwen2-7b", "qwen3-0.6b", "mixtral-8x7b"}) {
    std::vector<std::string> notes;
    const std::string file = "hf/" + folder + "/config.json";
    LoadedConfig theirs = imported(file, Framework::hf_config, {}, notes, {"--training.seq_len=128"});
    EXPECT_THAT(notes, Contains("harmless: architectures: does not describe the model's shape"));
    LoadedConfig by_hf = load_good("model.hf = \"" + testdata_path(file) + "\"", {"--training.seq_len=128"});
    by_hf.config.model.hf = "";
    EXPECT_EQ(values_of(theirs.config), values_of(by_hf.config)) << folder;
  }
}

TEST(Import, ValuesWithoutACounterpartAreLeftOut) {
  const Imported result = import_config("x.yaml", "parallelism:\n  pp_engine: zigzag\n  tp: 4\n");
  EXPECT_THAT(result.notes, Contains("parallelism.pp_engine = \"zigzag\" has no counterpart here (known: 1f1b, afab) "
                                     "(line 2); set parallelism.pp_schedule"));
  EXPECT_EQ(load(result.toml).config.parallelism.tp, 4);
}

TEST(Import, WrongValuesStopItWithTheirPlace) {
  EXPECT_EQ(message_of<ConfigError>([] { import_config("x.sh", "train \\\n --bf16 maybe"); }),
            "--bf16 = maybe is not true or false\n  --> x.sh:2");
}

TEST(Import, TakesNoOtherTrainersWords) {
  const Imported result = import_config("x.json", R"({"train_batch_size": 8, "tokens": {"train_steps": 5},
                                                      "training": {"steps": 5}, "model": {"name": "x"}})");
  EXPECT_THAT(result.notes, Contains("tokens.train_steps = 5: no counterpart"));
  EXPECT_THAT(result.notes, Contains("training.steps = 5: no counterpart"));
  EXPECT_THAT(result.notes, Contains("model.name = \"x\": no counterpart"));
}

TEST(Import, TheTrainerMayBeNamed) {
  EXPECT_EQ(import_config("x.txt", "--seed 5", Framework::megatron).from, Framework::megatron);
}

/// An imported file as values, and its notes with the harmless ones marked.
std::map<std::string, std::string> values_of_import(const std::string& name, const std::string& contents,
                                                    std::vector<std::string>& notes) {
  const Imported result = import_config(name, contents);
  notes = result.notes;
  for (const std::string& note : result.harmless) notes.push_back("harmless: " + note);
  return values_of(load_config_text("imported.toml", result.toml).config);
}

const std::string kTitan = "[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nsteps = 10\nseq_len = 64\n";

TEST(Import, ChunksOfTorchtitansInterleavedSchedule) {
  std::vector<std::string> notes;
  const std::string pipeline = kTitan + "[parallelism]\npipeline_parallel_degree = 4\n";
  const auto imported = [&](const std::string& more) { return values_of_import("t.toml", pipeline + more, notes); };
  auto values = imported("pipeline_parallel_schedule = 'Interleaved1F1B'\n");
  EXPECT_EQ(values.at("parallelism.virtual_stages"), "2");
  EXPECT_EQ(values.at("parallelism.pp_schedule"), R"("interleaved-1f1b")");
  // 32 layers, embedding and head: 34 / 3 are 12 chunks.
  values = imported("pipeline_parallel_schedule = 'Interleaved1F1B'\npipeline_parallel_layers_per_stage = 3\n");
  EXPECT_EQ(values.at("parallelism.virtual_stages"), "3");
  imported("pipeline_parallel_schedule = 'Interleaved1F1B'\npipeline_parallel_layers_per_stage = 5\n");
  EXPECT_THAT(notes, Contains(HasSubstr("gives 7 chunks for 4 pipeline ranks")));
  EXPECT_EQ(imported("pipeline_parallel_schedule = '1F1B'\n").at("parallelism.virtual_stages"), "1");
}

TEST(Import, TorchtitansFloat8) {
  std::vector<std::string> notes;
  const auto imported = [&](const std::string& converters, const std::string& more) {
    return values_of_import("t.toml", "[model]\nconverters = " + converters + "\n" + kTitan.substr(8) + more, notes);
  };
  auto values = imported("['quantize.linear.float8']",
                         "[quantize.linear.float8]\nenable_fsdp_float8_all_gather = true\nrecipe_name = 'rowwise'\n"
                         "filter_fqns = ['output']\n");
  EXPECT_EQ(values.at("precision.matmul"), R"("fp8")");
  EXPECT_EQ(values.at("precision.fp8_scaling"), R"("row")");
  EXPECT_THAT(notes, Not(Contains(::testing::AllOf(HasSubstr("float8"), Not(HasSubstr("harmless"))))));
  values = imported("['float8']", "");
  EXPECT_EQ(values.at("precision.matmul"), R"("fp8")");
  EXPECT_EQ(values.at("precision.fp8_scaling"), R"("tensor")");
  EXPECT_THAT(notes, Contains(HasSubstr("the head's product")));
  values = imported("['mx']", "[float8]\nrecipe_name = 'rowwise'\n");
  EXPECT_EQ(values.at("precision.matmul"), R"("auto")");
  EXPECT_THAT(notes, Contains(HasSubstr("\"mx\" has no counterpart")));
  EXPECT_THAT(notes, Contains(HasSubstr("harmless: float8.recipe_name")));
}

TEST(Import, InitialWeightsAreScaledAsThere) {
  std::vector<std::string> notes;
  EXPECT_EQ(values_of_import("t.toml", kTitan, notes).at("model.initializer"), R"("torchtitan")");
  const std::string nanotron = testdata("nanotron_tiny_llama.yaml");
  EXPECT_EQ(values_of_import("n.yaml", nanotron, notes).at("model.initializer"), R"("scaled")");
  const std::string std_key = "std: 0.025";
  ASSERT_THAT(nanotron, HasSubstr(std_key));
  const auto with = [&](const std::string& method) {
    std::string text = nanotron;
    const std::size_t at = text.find(std_key), line = text.rfind('\n', at) + 1;
    return text.insert(text.find('\n', at) + 1, text.substr(line, at - line) + "scaling_method: " + method + "\n");
  };
  EXPECT_EQ(values_of_import("n.yaml", with("layer_index"), notes).at("model.initializer"), R"("depth-scaled")");
  EXPECT_EQ(values_of_import("n.yaml", with("none"), notes).at("model.initializer"), R"("normal")");
  EXPECT_EQ(values_of_import("m.sh", testdata("megatron_llama.sh"), notes).at("model.initializer"), R"("scaled")");
}

TEST(Import, TokenizerFilesOfMegatron) {
  std::vector<std::string> notes;
  const std::string script =
      "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 "
      "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --train-iters 5 --lr 1e-3 "
      "--merge-file data/merges.txt --vocab-file ";
  EXPECT_EQ(values_of_import("m.sh", script + "data/vocab.json", notes).at("tokenizer.path"), R"("data/vocab.json")");
  EXPECT_EQ(values_of_import("m.sh", script + "gpt2-vocab.json", notes).at("tokenizer.path"), R"("")");
  EXPECT_THAT(notes, Contains(HasSubstr("--vocab-file = gpt2-vocab.json: a vocabulary has the name vocab.json here")));
  EXPECT_EQ(values_of_import("m.sh", script + "v.json --tokenizer-model t.model", notes).at("tokenizer.path"),
            R"("t.model")");
}

TEST(Import, OptimizersOfTheTrainer) {
  std::vector<std::string> notes;
  const auto imported = [&](const std::string& optim) {
    return values_of_import("args.json",
                            "{\"per_device_train_batch_size\": 1, \"learning_rate\": 1e-3, \"max_steps\": 5, "
                            "\"output_dir\": \"out\", \"optim\": \"" +
                                optim + "\"}",
                            notes);
  };
  EXPECT_EQ(imported("adamw_torch_fused").at("optimizer.name"), R"("adamw")");
  EXPECT_THAT(notes, Not(Contains(HasSubstr("optim"))));
  EXPECT_EQ(imported("sgd").at("optimizer.momentum"), "0.0");
  imported("adafactor");
  EXPECT_THAT(notes, Contains(HasSubstr("optim = \"adafactor\" has no counterpart here")));
}

}  // namespace
}  // namespace trireme::config
