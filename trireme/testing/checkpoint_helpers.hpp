#pragma once
// For tests: a small checkpoint of two or more ranks, with any step and contents, and its comparison.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/checkpoint/format/commit.hpp"
#include "trireme/checkpoint/format/manifest_parts.hpp"
#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/checkpoint/format/shard_writer.hpp"
#include "trireme/files/safetensors_write.hpp"

namespace trireme {

/// An id of a checkpoint: 32 hexadecimal digits.
inline std::string example_id(std::uint64_t number) { return str(files::Xxh3{.high = 0xABCDEF, .low = number}); }

struct ExampleCheckpoint {
  std::int64_t step = 10;
  std::uint64_t number = 10;  // of the id, and of the values
  int ranks = 2;
};

struct ExampleFiles {
  checkpoint::Manifest manifest{};                           // without the small files
  std::vector<std::pair<std::string, std::string>> ranks{};  // names and contents
  checkpoint::SmallFiles small{};
};

/// Matrices that are cut into rows, into columns and into both, vectors of one rank, and random states.
inline ExampleFiles example_files(const ExampleCheckpoint& example) {
  using checkpoint::StoredSlice;
  using checkpoint::StoredTensor;
  using files::SafetensorsDtype;
  ExampleFiles out;
  const auto ranks = static_cast<std::size_t>(example.ranks);
  const std::int64_t n = example.ranks;
  std::vector<std::vector<files::SafetensorsTensor>> entries(ranks);
  std::vector<std::string> data(ranks);
  std::mt19937_64 random(example.number);
  const auto add = [&](const std::string& name, const char* kind, SafetensorsDtype dtype, const Shape& shape,
                       const std::vector<std::pair<std::size_t, Box>>& pieces) {
    StoredTensor tensor{.name = name, .kind = kind, .dtype = dtype, .shape = shape};
    for (const auto& [rank, box] : pieces) {
      std::string bytes(static_cast<std::size_t>(bytes_of(tensor, box)), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      Shape sizes;
      for (const Range& side : box) sizes.push_back(side.size());
      entries[rank].push_back({text(name, "/", kind, "/", tensor.slices.size()), dtype, sizes});
      tensor.slices.push_back({.box = box,
                               .file = rank,
                               .offset = data[rank].size(),  // the header is added when it is known
                               .hash = files::xxh3(std::as_bytes(std::span(bytes)))});
      data[rank] += bytes;
    }
    out.manifest.tensors.push_back(std::move(tensor));
  };
  const auto rows = [&](std::int64_t height, const Box& rest) {
    std::vector<std::pair<std::size_t, Box>> pieces;
    for (std::int64_t rank = 0; rank < n; ++rank) {
      Box box{{rank * height / n, (rank + 1) * height / n}};
      box.insert(box.end(), rest.begin(), rest.end());
      pieces.emplace_back(static_cast<std::size_t>(rank), box);
    }
    return pieces;
  };
  std::vector<std::pair<std::size_t, Box>> tiles;  // columns over the ranks, each in two parts
  for (std::int64_t rank = 0; rank < n; ++rank)
    for (const Range part : {Range{0, 10}, Range{10, 32}})
      tiles.emplace_back(static_cast<std::size_t>(rank), Box{part, {rank * 24 / n, (rank + 1) * 24 / n}});
  for (const char* kind : {"exp_avg", "exp_avg_sq", checkpoint::kWeight}) {
    add("embedding.weight", kind, SafetensorsDtype::F32, {8, 6}, rows(8, {{0, 6}}));
  }
  for (const char* kind : {"exp_avg", "exp_avg_sq", checkpoint::kWeight}) {
    add("layers.0.attention.qkv.weight", kind, SafetensorsDtype::F32, {32, 24}, tiles);
  }
  for (const char* name : {"layers.0.norm.weight", "layers.1.norm.weight"})
    add(name, checkpoint::kWeight, SafetensorsDtype::BF16, {12}, {{0, Box{{0, 12}}}});
  for (std::size_t rank = 0; rank < ranks; ++rank)
    add(text("rank-", rank, "/cpu"), checkpoint::kRandom, SafetensorsDtype::U8, {100}, {{rank, Box{{0, 100}}}});
  add("scale", checkpoint::kWeight, SafetensorsDtype::F64, {}, {{ranks - 1, Box{}}});

  checkpoint::Manifest& manifest = out.manifest;
  manifest.id = example_id(example.number);
  manifest.program = "trireme test";
  manifest.time = "2026-11-16T14:00:00Z";
  manifest.layout = {{"world", n}, {"dp", n}, {"tp", 1}, {"zero", 1}};
  manifest.config = {{"training.steps", "400"}, {"model.hidden_size", "24"}};
  manifest.training = {.step = example.step, .optimizer_steps = example.step, .tokens = 2048 * example.step};
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::string name = checkpoint::rank_file_name(static_cast<int>(rank));
    const std::string header = safetensors_header(entries[rank], {{"checkpoint", manifest.id}}, name);
    for (StoredTensor& tensor : manifest.tensors)
      for (StoredSlice& slice : tensor.slices)
        if (slice.file == rank) slice.offset += header.size();
    manifest.files.push_back({.name = name,
                              .bytes = header.size() + data[rank].size(),
                              .header_bytes = header.size(),
                              .header_hash = files::xxh3(std::as_bytes(std::span(header)))});
    out.ranks.emplace_back(name, header + data[rank]);
  }
  out.small = {{"config.json", text("{\"step\": ", example.step, "}\n")},
               {"inner/most/notes.json", text("{\"notes\": ", example.step, "}\n")}};
  return out;
}

inline checkpoint::SaveTarget example_target(const std::filesystem::path& folder, const ExampleCheckpoint& example) {
  return {.folder = folder, .step = example.step, .id = example_id(example.number)};
}

/// Saves it with the writer of a run, one rank after the other: always the same operations. CheckpointError as in
/// commit().
inline void save_example(files::Fs& fs, const std::filesystem::path& folder, const ExampleCheckpoint& example) {
  const ExampleFiles made = example_files(example);
  const checkpoint::SaveTarget target = example_target(folder, example);
  checkpoint::BlockPool pool(checkpoint::BlockPool::kBlockBytes);
  for (std::size_t rank = 0; rank < made.ranks.size(); ++rank) {
    const auto& [name, contents] = made.ranks[rank];
    const std::span<const std::byte> bytes = std::as_bytes(std::span(contents));
    checkpoint::ShardWriter writer(fs, pool, target, name);
    writer.append(bytes.first(static_cast<std::size_t>(made.manifest.files[rank].header_bytes)));
    for (const checkpoint::StoredTensor& tensor : made.manifest.tensors)
      for (const checkpoint::StoredSlice& slice : tensor.slices)
        if (slice.file == rank)
          writer.append({tensor.name, tensor.kind, tensor.dtype, tensor.shape, slice.box},
                        bytes.subspan(static_cast<std::size_t>(slice.offset),
                                      static_cast<std::size_t>(bytes_of(tensor, slice.box))));
    writer.end();
    write_part(fs, target, static_cast<int>(rank), writer.finish());
  }
  checkpoint::Manifest manifest = made.manifest;
  manifest.files.clear();
  manifest.tensors.clear();
  collect_parts(manifest, target, example.ranks);
  commit(fs, target, manifest, made.small);
}

/// Rewrites a checkpoint as it was before manifests had parts: all slices are in the manifest, which `change` may
/// change.
template <class Change>
void make_version_1(const std::filesystem::path& checkpoint, const Change& change) {
  checkpoint::Manifest old = checkpoint::Reader(checkpoint).manifest();
  for (checkpoint::StoredTensor& tensor : old.tensors) {
    tensor.parts.clear();
    for (checkpoint::StoredSlice& slice : tensor.slices)  // the parts before it go
      slice.file -= static_cast<std::size_t>(std::ranges::lower_bound(old.parts, slice.file) - old.parts.begin());
  }
  for (auto part = old.parts.rbegin(); part != old.parts.rend(); ++part) {
    std::filesystem::remove(checkpoint / old.files[*part].name);
    old.files.erase(old.files.begin() + static_cast<std::ptrdiff_t>(*part));
  }
  old.parts.clear();
  change(old);
  std::string json = to_json(old);
  const std::string version = text("\"version\": ", checkpoint::kVersion);
  json.replace(json.find(version), version.size(), "\"version\": 1");
  const std::size_t begin = json.find('{', 1);
  const std::string body = json.substr(begin, json.size() - begin - 2);
  json.replace(checkpoint::kManifestBegin.size(), 32, str(files::xxh3(std::as_bytes(std::span(body)))));
  std::ofstream(checkpoint / checkpoint::kManifestName, std::ios::trunc) << json;
}

/// All that a checkpoint holds: the manifest, every slice and every small file, as one text.
inline std::string whole_checkpoint(const checkpoint::Reader& reader) {
  std::string out = to_json(reader.manifest());
  for (const checkpoint::StoredTensor& tensor : reader.manifest().tensors)
    for (const checkpoint::StoredSlice& slice : tensor.slices) {
      std::string bytes(static_cast<std::size_t>(bytes_of(tensor, slice.box)), '\0');
      reader.read_slice(tensor, slice, std::as_writable_bytes(std::span(bytes)));
      out += bytes;
    }
  for (const checkpoint::StoredFile& file : reader.manifest().files)
    if (!checkpoint::is_rank_file(file.name)) out += reader.small_file(file.name);
  return out;
}

}  // namespace trireme
