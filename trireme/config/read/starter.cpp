#include "trireme/config/read/starter.hpp"

#include <algorithm>
#include <filesystem>

#include "trireme/base/error.hpp"
#include "trireme/config/read/parse.hpp"
#include "trireme/config/read/reference.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/config/schema/presets.hpp"
#include "trireme/config/settings/nearest.hpp"
#include "trireme/data/tokenizer/tokenizer.hpp"

namespace trireme::config {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLongestStart = 4096;

bool has_weights(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / "model.safetensors", none) || fs::exists(folder / "model.safetensors.index.json", none);
}

/// Writes keys with their meaning as a comment.
class Starter {
 public:
  explicit Starter(Config config) : config_(std::move(config)), fields_(fields(config_)) {}

  void table(const std::string& name) { out_ += text(out_.empty() ? "" : "\n", "[", name, "]\n"); }
  void line(const std::string& words) { out_ += words + "\n"; }
  void key(const std::string& key) {
    const auto field = std::ranges::find(fields_, key, &Field::key);
    require(field != fields_.end(), "the starter config has the unknown key ", key);
    std::string words = text(leaf_of(key), " = ", toml_text(field->value));
    words.resize(std::max<std::size_t>(words.size() + 2, 30), ' ');
    line(words + "# " + meaning_of(*field));
  }
  std::string take() && { return std::move(out_); }

 private:
  Config config_;
  std::vector<Field> fields_;
  std::string out_;
};

Config config_for(const std::string& preset, const std::string& hf_folder) {
  require<ConfigError>(preset.empty() != hf_folder.empty(),
                       "config new needs a model\n  fix: --preset NAME, for instance ",
                       "tiny-llama, or --hf FOLDER with a config.json");
  Settings settings;
  if (!preset.empty()) {
    const std::string near = nearest(preset, preset_names());
    require<ConfigError>(find_preset(preset).has_value(), "unknown preset ", shortened(preset),
                         near.empty() ? "" : text("; did you mean \"", near, "\"?"),
                         "\n  fix: trireme config show --help lists them");
    settings.push_back({"model.preset", {preset}, {"", 0, 0, "--preset " + preset}});
  } else {
    const bool weights = has_weights(hf_folder);
    settings.push_back({weights ? "model.init" : "model.hf",
                        {weights ? "hf:" + hf_folder : hf_folder},
                        {"", 0, 0, "--hf " + hf_folder}});
  }
  LoadedConfig loaded = load_settings("", "", {}, settings);
  throw_if_any(loaded.violations);
  Config& c = loaded.config;
  if (const auto tokenizer = data::tokenizer_file_in(hf_folder); tokenizer && !hf_folder.empty())
    c.tokenizer.path = tokenizer->string();
  c.training.seq_len = std::min(c.model.max_position_embeddings, kLongestStart);
  c.training.micro_batch_size = 1;
  c.training.grad_accum = 8;
  const bool fresh = c.model.init == "random";
  c.optimizer.lr = fresh ? 3e-4 : 1e-5;
  c.lr_scheduler.warmup_steps = 100;
  c.lr_scheduler.min_lr = fresh ? 3e-5 : 1e-6;
  return c;
}

}  // namespace

std::string starter_toml(const std::string& preset, const std::string& hf_folder) {
  const Config c = config_for(preset, hf_folder);
  Starter out(c);
  out.line("# trireme train run.toml -n 8     any key can be set on the command line: --training.steps 50");
  out.line(
      "# trireme config explain KEY      what a key means; trireme config check run.toml -n 8: whether it would train");
  out.line("");
  out.line("[run]");
  out.key("run.name");
  out.key("run.dir");
  out.key("run.seed");
  out.table("model");
  if (!preset.empty())
    out.key("model.preset");
  else
    out.key(c.model.init == "random" ? "model.hf" : "model.init");
  out.key("model.dtype");
  out.table("tokenizer");
  out.key("tokenizer.path");
  out.line("");
  out.line("[[data]]                      # one table a stage; trireme data prepare writes token files");
  out.line("sources = [ { path = \"synthetic\", weight = 1.0 } ]   # random tokens: put your token files here");
  out.table("training");
  for (const char* key : {"steps", "seq_len", "micro_batch_size", "grad_accum", "max_norm"})
    out.key(text("training.", key));
  out.table("optimizer");
  for (const char* key : {"name", "lr", "betas", "weight_decay", "no_decay"}) out.key(text("optimizer.", key));
  out.table("lr_scheduler");
  for (const char* key : {"warmup_steps", "decay", "min_lr"}) out.key(text("lr_scheduler.", key));
  out.table("parallelism");
  for (const char* key : {"dp", "zero", "tp", "sequence_parallel"}) out.key(text("parallelism.", key));
  out.table("activation_checkpoint");
  out.key("activation_checkpoint.mode");
  out.table("validation");
  out.key("validation.interval");
  out.key("validation.fraction");
  out.table("metrics");
  out.key("metrics.interval");
  out.key("metrics.tensorboard");
  return std::move(out).take();
}

}  // namespace trireme::config
