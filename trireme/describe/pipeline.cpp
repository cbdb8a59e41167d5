#include "trireme/describe/pipeline.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/describe/counts.hpp"
#include "trireme/describe/parameters.hpp"
#include "trireme/layout/split.hpp"
#include "trireme/schedule/generate.hpp"
#include "trireme/schedule/replay.hpp"

namespace trireme {
namespace {

std::vector<Range> layers_of_chunks(const ModelConfig& m, const ParallelismConfig& p, int chunks) {
  if (!p.stages.empty()) {
    std::vector<Range> out;
    for (const std::int64_t layers : p.stages) {
      const std::int64_t begin = out.empty() ? 0 : out.back().end;
      out.push_back({begin, begin + layers});
    }
    return out;
  }
  const config::ParameterCounts counts = config::count_parameters(m);
  const auto layers = static_cast<std::size_t>(m.num_hidden_layers);
  const double cost = static_cast<double>(counts.attention + counts.mlp + counts.own) / static_cast<double>(layers);
  const double head = static_cast<double>(m.vocab_size) * static_cast<double>(m.hidden_size);
  return layers_over_stages(std::vector<double>(layers, cost), chunks, 0, head);
}

/// Checked, except for the number of microbatches.
schedule::Schedule schedule_of_file(const ParallelismConfig& p) {
  const std::string key = "parallelism.pp_schedule_file = ";
  schedule::Schedule schedule;
  try {
    schedule = read_schedule(p.pp_schedule_file);
  } catch (const ConfigError& e) {
    throw ConfigError(key + e.what());
  }
  require<ConfigError>(schedule.ranks() == p.pp, key, p.pp_schedule_file, ": it is for ", schedule.ranks(),
                       " pipeline ranks, parallelism.pp = ", p.pp, "\n  fix: set parallelism.pp = ", schedule.ranks());
  require<ConfigError>(schedule.edges == schedule::chain(schedule.chunks()), key, p.pp_schedule_file,
                       ": its edges are not those of the model, which is a chain of chunks",
                       "\n  fix: leave out the line 'edges'");
  return schedule;
}

}  // namespace

schedule::Schedule read_schedule(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream contents;
  contents << file.rdbuf();
  require<ConfigError>(file.good() && !contents.str().empty(), path, ": the file cannot be read, or is empty",
                       "\n  fix: a file as trireme schedule NAME --text prints it");
  try {
    schedule::Schedule schedule = schedule::parse_schedule(contents.str());
    schedule::replay(schedule);
    return schedule;
  } catch (const ConfigError& e) {
    throw ConfigError(text(path, ": ", e.what(), "\n  fix: a file as trireme schedule NAME --text prints it"));
  } catch (const InternalError& e) {  // of replay(), to which schedules of our own are given too
    throw ConfigError(text(path, ": ", e.what(),
                           "\n  fix: every chunk needs, for every microbatch, F and then B (or I and ",
                           "W), after those that it waits for"));
  }
}

schedule::Schedule pipeline_schedule(const ParallelismConfig& p, std::int64_t microbatches) {
  if (p.pp_schedule_file.empty())
    return schedule::make_schedule(p.pp_schedule, static_cast<int>(p.pp), static_cast<int>(microbatches),
                                   static_cast<int>(p.virtual_stages));
  schedule::Schedule schedule = schedule_of_file(p);
  require<ConfigError>(schedule.microbatches == microbatches, "parallelism.pp_schedule_file = ", p.pp_schedule_file,
                       ": it is for ", schedule.microbatches, " microbatches, a step has ", microbatches,
                       "\n  fix: set training.grad_accum = ", schedule.microbatches);
  return schedule;
}

std::vector<PipelineChunk> pipeline_chunks(const ModelConfig& m, const ParallelismConfig& p) {
  const std::vector<int> stages =
      p.pp_schedule_file.empty()
          ? schedule::make_schedule(p.pp_schedule, static_cast<int>(p.pp), 1, static_cast<int>(p.virtual_stages))
                .rank_of_chunk
          : schedule_of_file(p).rank_of_chunk;
  const std::vector<Range> layers = layers_of_chunks(m, p, static_cast<int>(stages.size()));
  require<ConfigError>(layers.size() == stages.size() && layers.back().end == m.num_hidden_layers,
                       "parallelism.stages has ", layers.size(), " chunks with ", layers.back().end,
                       " layers: the pipeline has ", stages.size(), ", the model ", m.num_hidden_layers);
  std::vector<PipelineChunk> chunks;
  for (std::size_t c = 0; c < stages.size(); ++c) chunks.push_back({stages[c], layers[c]});
  return chunks;
}

int stage_of_parameter(const std::vector<PipelineChunk>& chunks, std::string_view name) {
  const std::int64_t layer = without_layer(name).second;
  if (layer < 0) {
    const bool at_the_begin = name.starts_with("embedding.") || name.starts_with("positions.");
    return (at_the_begin ? chunks.front() : chunks.back()).stage;
  }
  const auto holds = [&](const PipelineChunk& chunk) {
    return chunk.layers.begin <= layer && layer < chunk.layers.end;
  };
  const auto chunk = std::ranges::find_if(chunks, holds);
  require(chunk != chunks.end(), name, " is in none of the ", chunks.size(), " chunks of the model");
  return chunk->stage;
}

}  // namespace trireme
