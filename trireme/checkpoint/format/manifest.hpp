#pragma once
// The manifest of a checkpoint: what is in it, where, and with which hashes. docs/checkpoints.md describes the format.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/files/safetensors_dtype.hpp"
#include "trireme/files/xxh3.hpp"
#include "trireme/layout/slices.hpp"

namespace trireme::checkpoint {

inline constexpr int kVersion = 2;  // 1: without parts, the slices are in the manifest
inline constexpr const char* kManifestName = "checkpoint_metadata.json";
inline constexpr std::string_view kManifestBegin = "{\"xxh3\": \"";     // nanotron's file of this name begins otherwise
inline constexpr std::size_t kMaxManifestBytes = std::size_t{1} << 27;  // a slice takes about 70: a million of them

/// A box of a tensor: its elements, in row-major order, are contiguous in a file.
struct StoredSlice {
  Box box;                   // in coordinates of the full tensor
  std::size_t file = 0;      // index in Manifest::files
  std::uint64_t offset = 0;  // of its first byte, from the begin of the file
  files::Xxh3 hash{};        // of its bytes
  bool operator==(const StoredSlice&) const = default;
};

/// A full tensor. Its slices cover every element exactly once.
struct StoredTensor {
  std::string name;  // of the parameter: "layers.3.attention.qkv.weight"
  std::string kind;  // kWeight, an optimizer's state ("exp_avg"), kModel, kRandom or kFp8History
  files::SafetensorsDtype dtype = files::SafetensorsDtype::F32;
  Shape shape;
  std::vector<Range> parts{};         // indices in Manifest::parts: those with slices of it
  std::vector<StoredSlice> slices{};  // of the parts that were read; in version 1 of the manifest
  bool operator==(const StoredTensor&) const = default;
};
inline constexpr const char* kWeight = "weight";  // in the precision of the optimizer: the master, if there is one
inline constexpr const char* kModel = "model";    // in the precision of the model; only in nanotron's layout
// Of a rank itself, named "rank-3": its generators, and what scales in fp8 follow from. Another layout has no use for
// them.
inline constexpr const char* kRandom = "random";
inline constexpr const char* kFp8History = "fp8_history";
inline bool is_of_rank(std::string_view kind) { return kind == kRandom || kind == kFp8History; }

// Of checkpoints of a module (module/module_checkpoint.hpp) alone:
inline constexpr const char* kBuffer = "buffer";    // its value, as a weight's
inline constexpr const char* kArchive = "archive";  // the bytes of an optimizer whose states have no names

/// A file of the folder. Slices cover it except for `header_bytes` bytes, which, one after the other, have this hash: a
/// header, or what a .pt file has between its tensors. For a small file (config.json) that is the whole file.
struct StoredFile {
  std::string name;  // a base name, or a path of base names: "optimizer/optimizer_config.json"
  std::uint64_t bytes = 0, header_bytes = 0;
  files::Xxh3 header_hash{};
  bool operator==(const StoredFile&) const = default;
};

/// What training needs apart from tensors.
struct TrainingState {
  std::int64_t step = 0;             // finished steps
  std::int64_t optimizer_steps = 0;  // without skipped ones
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;                      // updates
  std::vector<std::int64_t> samples_consumed{};  // of each data stage that has started
  std::map<std::string, std::string> data{};     // identifies the sampling plan, key by key
  // Loss scaling; only for float16.
  struct LossScale {
    double scale = 0;
    std::int64_t good_steps = 0, patience = 0;
    bool operator==(const LossScale&) const = default;
  };
  std::optional<LossScale> loss_scale{};
  std::vector<double> loss_window{}, norm_window{};  // of the z-scores, oldest first
  bool operator==(const TrainingState&) const = default;
};

// Note [Parts of a manifest]
// Ten thousand ranks write millions of slices. So each rank lists its own in a file next to its tensors,
// rank_part_name(), which is a Manifest of only these files, and the manifest itself says which parts have slices of a
// tensor. A rank that loads reads the parts that it needs. In `files`, the files of a part come before the part, and
// after the part before it; small files come last.
struct Manifest {
  std::string id;       // 32 hexadecimal digits, new for each save; also in the metadata of every rank's file
  std::string program;  // "trireme 0.1.0"
  std::string time;     // UTC, "2026-11-16T14:00:00Z"
  std::map<std::string, std::int64_t> layout{};  // "world", "pp", "dp", "cp", "tp", "ep", "zero": for display
  std::map<std::string, std::string> config{};   // every key of the config with its value, as in a config file
  TrainingState training{};
  std::vector<StoredFile> files{};
  std::vector<std::size_t> parts{};     // indices in `files`
  std::vector<StoredTensor> tensors{};  // sorted by name, then kind
  bool operator==(const Manifest&) const = default;
};

/// The file's text: one JSON object {"xxh3": hash of the text of "checkpoint", "checkpoint": {...}}. Slices are in the
/// text of a manifest without parts.
std::string to_json(const Manifest& manifest);

/// CheckpointError names the rule that the text violates: hash, version, syntax, types, a file name that is not a base
/// name (SecurityError), a slice outside of its tensor or file, slices that do not cover their tensor.
/// `shown`: the name for messages.
Manifest parse_manifest(std::string_view json, const std::string& shown);
/// The same for a part of it: slices need not cover their tensors.
Manifest parse_part(std::string_view json, const std::string& shown);

/// The files of a part: indices in Manifest::files.
Range files_of_part(const Manifest& manifest, std::size_t part);

const StoredTensor* find(const Manifest& manifest, std::string_view name, std::string_view kind);
std::uint64_t bytes_of(const StoredTensor& tensor, const Box& box);
std::uint64_t bytes_of(const StoredTensor& tensor);
std::uint64_t total_bytes(const Manifest& manifest);  // of all files

}  // namespace trireme::checkpoint
