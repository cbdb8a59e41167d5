#pragma once
// For tests: a checkpoint of a model with any values, as one rank saves it.
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/manifest_parts.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/format/shard_writer.hpp"
#include "trireme/checkpoint/sources/model_source.hpp"
#include "trireme/config/schema/fields.hpp"
#include "trireme/describe/parameters.hpp"

namespace trireme {

/// The values of all keys, as a manifest has them.
inline std::map<std::string, std::string> texts_of(Config config) {
  std::map<std::string, std::string> out;
  for (const config::Field& field : config::fields(config)) out[field.key] = config::toml_text(field.value);
  return out;
}

/// FOLDER/step-STEP of a model with derived values: weights and two states of each parameter, one of another dtype, a
/// state of the generators, and a small file.
inline std::filesystem::path save_model(files::Fs& fs, const std::filesystem::path& folder, const ModelConfig& model,
                                        std::int64_t step = 8, std::uint64_t seed = 1) {
  using checkpoint::PlannedSlice;
  using files::SafetensorsDtype;
  const std::pair<const char*, SafetensorsDtype> kinds[] = {{"exp_avg", SafetensorsDtype::F32},
                                                            {"exp_avg_sq", SafetensorsDtype::BF16},
                                                            {checkpoint::kWeight, SafetensorsDtype::F32}};
  std::vector<PlannedSlice> slices;
  for (const Parameter& parameter : all_parameters(model))
    for (const auto& [kind, dtype] : kinds)
      for (const Box& box : checkpoint::split_box(checkpoint::whole_box(parameter.spec.shape), std::int64_t{1} << 22))
        slices.push_back({parameter.name, kind, dtype, parameter.spec.shape, box});
  slices.push_back({"rank-0", checkpoint::kRandom, SafetensorsDtype::U8, {16}, {{0, 16}}});

  Config config;
  config.model = model;
  config.parallelism.dp = 1;
  config.parallelism.expert_tp = 1;
  checkpoint::Manifest manifest{.id = str(files::Xxh3{.high = 77, .low = seed}),
                                .program = "trireme test",
                                .time = "2026-11-16T14:00:00Z",
                                .layout = {{"world", 1}, {"pp", 1}, {"dp", 1}, {"cp", 1}, {"tp", 1}, {"zero", 1}},
                                .config = texts_of(config),
                                .training = {.step = step, .optimizer_steps = step, .tokens = 100 * step}};
  const checkpoint::SaveTarget target{.folder = folder, .step = step, .id = manifest.id};
  checkpoint::BlockPool pool(2 * checkpoint::BlockPool::kBlockBytes);
  checkpoint::ShardWriter writer(fs, pool, target, checkpoint::rank_file_name(0));
  const std::string header = checkpoint::rank_file_header(slices, target.id);
  writer.append(std::as_bytes(std::span(header)));
  std::mt19937_64 random(seed);
  std::vector<std::uint64_t> values;
  for (const PlannedSlice& slice : slices) {
    const std::size_t bytes = checkpoint::bytes_of_box(slice.box, slice.dtype);
    values.resize(bytes / sizeof(std::uint64_t) + 1);
    for (std::uint64_t& value : values) value = random();
    writer.append(slice, std::as_bytes(std::span(values)).first(bytes));
  }
  writer.end();
  checkpoint::write_part(fs, target, 0, writer.finish());
  checkpoint::collect_parts(manifest, target, 1);
  checkpoint::commit(fs, target, manifest, {{"config.json", "{\"made\": \"by a test\"}\n"}});
  return target.final();
}

/// The bytes of every tensor, by "name kind", read as one box.
inline std::map<std::string, std::string> full_tensors(const checkpoint::Reader& reader) {
  std::map<std::string, std::string> out;
  for (const checkpoint::StoredTensor& tensor : reader.manifest().tensors) {
    const Box box = checkpoint::whole_box(tensor.shape);
    std::string& bytes = out[tensor.name + " " + tensor.kind];
    bytes.resize(static_cast<std::size_t>(bytes_of(tensor, box)));
    reader.read(tensor, box, std::as_writable_bytes(std::span(bytes)));
  }
  return out;
}

}  // namespace trireme
