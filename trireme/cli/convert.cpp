// `trireme convert SOURCE OUT --to hf|nanotron`
#include <optional>

#include "trireme/base/error.hpp"
#include "trireme/base/human.hpp"
#include "trireme/base/stop_signals.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/checkpoint/sources/model_target.hpp"
#include "trireme/cli/checkpoint.hpp"
#include "trireme/cli/commands.hpp"
#include "trireme/cli/data.hpp"
#include "trireme/files/convert_dtype.hpp"

namespace trireme::cli {
namespace {

std::uint64_t bytes_of_tensor(const checkpoint::ModelTensor& tensor, files::SafetensorsDtype dtype) {
  return checkpoint::bytes_of_box(checkpoint::whole_box(tensor.shape), dtype);
}

/// A source that shows how much of it was read, and ends the work when a signal asks for it.
class WatchedSource final : public checkpoint::ModelSource {
 public:
  WatchedSource(std::unique_ptr<checkpoint::ModelSource> source, ProgressLine& line)
      : source_(std::move(source)), line_(line) {
    for (const checkpoint::ModelTensor& tensor : tensors()) progress_.of += bytes_of_tensor(tensor, tensor.dtype);
  }
  const std::string& shown() const override { return source_->shown(); }
  const ModelConfig& model() const override { return source_->model(); }
  const std::vector<checkpoint::ModelTensor>& tensors() const override { return source_->tensors(); }
  const checkpoint::FilesBeside& files() const override { return source_->files(); }
  std::optional<files::SafetensorsDtype> usual_dtype() const override { return source_->usual_dtype(); }
  std::string note() const override { return source_->note(); }
  void read(const checkpoint::ModelTensor& tensor, const Box& box, std::span<std::byte> out) const override {
    if (StopSignals::received() != 0) throw Interrupted("interrupted; nothing was written");
    source_->read(tensor, box, out);
    progress_.read_bytes = progress_.taken += out.size();
    line_.show(progress_);
  }

 private:
  std::unique_ptr<checkpoint::ModelSource> source_;
  ProgressLine& line_;
  mutable data::DataProgress progress_{};
};

void convert_now(const ConvertCommand& command, Console& console) {
  const bool nanotron = command.to == "nanotron";
  require<ConfigError>(nanotron || command.to == "hf", "--to ", command.to, ": must be hf or nanotron",
                       "\n  fix: --to hf writes a Hugging Face folder");
  require<ConfigError>(command.layout == "code" || command.layout == "documented", "--layout ", command.layout,
                       ": must be code or documented");
  require<ConfigError>(nanotron || (command.tp == 1 && command.pp == 1 && command.layout == "code"),
                       "--tp, --pp and --layout are of nanotron checkpoints: a Hugging Face folder is not sharded");
  std::optional<files::SafetensorsDtype> dtype;
  if (!command.dtype.empty()) dtype = files::weight_dtype(command.dtype, "--dtype");
  ProgressLine line(console.err, console.err_terminal.tty, console.err_terminal.width, "converting");
  const WatchedSource source(checkpoint::open_model(meant_model(command.source, console.err)), line);
  if (!dtype) dtype = source.usual_dtype();
  if (!source.note().empty()) console.err << "warning: " << source.note() << "\n";
  if (nanotron && !source.model().rope_scaling.rope_type.empty() && source.model().rope_scaling.rope_type != "default")
    console.err << "warning: nanotron's own layers compute RoPE without rope_scaling ("
                << source.model().rope_scaling.rope_type << "): it is written to model_config.json only\n";
  const checkpoint::NanotronLayout layout{
      .tp = command.tp, .pp = command.pp, .documented = command.layout == "documented"};
  nanotron ? checkpoint::write_nanotron(source, command.output, layout, dtype)
           : checkpoint::write_hugging_face(source, command.output, dtype);
  line.clear();
  std::uint64_t bytes = 0;
  for (const checkpoint::ModelTensor& tensor : source.tensors())
    bytes += bytes_of_tensor(tensor, dtype.value_or(tensor.dtype));
  console.out << "wrote " << command.output << ": " << source.model().model_type << ", " << source.tensors().size()
              << " parameters, " << human_bytes(static_cast<double>(bytes)) << "\n";
}

}  // namespace

int run_convert(const ConvertCommand& command, Console& console) {
  return until_stopped(console, [&] { convert_now(command, console); });
}

}  // namespace trireme::cli
