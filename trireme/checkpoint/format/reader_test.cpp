#include "trireme/checkpoint/format/reader.hpp"

#include <future>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/stopwatch.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/files_helpers.hpp"
#include "trireme/testing/model_checkpoint.hpp"
#include "trireme/testing/model_helpers.hpp"
#include "trireme/testing/recording_fs.hpp"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A checkpoint of two ranks in a temporary folder.
struct SavedExample {
  TempFolder folder{};
  std::filesystem::path path = folder / "step-10";

  SavedExample() { save_example(files::real_fs(), folder.path(), {.step = 10, .number = 10}); }
  std::string refusal() const {
    return message_of<CheckpointError>([&] { const Reader reader(path); });
  }
};

TEST(CheckpointReader, GivesBackEverySliceAndEveryBox) {
  const SavedExample saved;
  const Reader reader(saved.path);
  const ExampleFiles wanted = example_files({.step = 10, .number = 10});
  std::vector<StoredTensor> tensors = reader.manifest().tensors;
  for (StoredTensor& tensor : tensors) {
    tensor.parts.clear();
    for (StoredSlice& slice : tensor.slices) slice.file /= 2;  // each file is followed by its part
  }
  EXPECT_TRUE(tensors == wanted.manifest.tensors);
  EXPECT_EQ(reader.small_file("config.json"), "{\"step\": 10}\n");
  EXPECT_EQ(reader.shown(), saved.path.string());

  const StoredTensor& tensor = *find(reader.manifest(), "layers.0.attention.qkv.weight", "exp_avg");
  std::vector<std::uint32_t> full(32 * 24), part;
  reader.read(tensor, {{0, 32}, {0, 24}}, std::as_writable_bytes(std::span(full)));
  for (const StoredSlice& slice : tensor.slices) {  // the full tensor has each slice in its place
    const std::string& file = wanted.ranks[slice.file / 2].second;
    std::size_t at = slice.offset;
    for (std::int64_t row = slice.box[0].begin; row < slice.box[0].end; ++row)
      for (std::int64_t column = slice.box[1].begin; column < slice.box[1].end; ++column, at += 4)
        ASSERT_EQ(std::memcmp(&full[static_cast<std::size_t>(row * 24 + column)], file.data() + at, 4), 0);
  }
  std::mt19937 random(3);
  for (int trial = 0; trial < 50; ++trial) {
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random()) % n; };
    Box box{{below(32), 0}, {below(24), 0}};
    box[0].end = box[0].begin + below(33 - box[0].begin);
    box[1].end = box[1].begin + below(25 - box[1].begin);
    part.assign(static_cast<std::size_t>(box[0].size() * box[1].size()), 0);
    reader.read(tensor, box, std::as_writable_bytes(std::span(part)));
    std::size_t at = 0;
    for (std::int64_t row = box[0].begin; row < box[0].end; ++row)
      for (std::int64_t column = box[1].begin; column < box[1].end; ++column)
        ASSERT_EQ(part[at++], full[static_cast<std::size_t>(row * 24 + column)]) << str(box);
  }
  std::uint64_t scalar = 0;
  reader.read(*find(reader.manifest(), "scale", kWeight), {}, std::as_writable_bytes(std::span(&scalar, 1)));
  EXPECT_NE(scalar, 0u);
}

TEST(CheckpointReader, IsThreadSafe) {
  const SavedExample saved;
  const Reader reader(saved.path);
  const std::string wanted = whole_checkpoint(reader);
  std::array<std::string, 4> got;
  {
    std::vector<std::jthread> threads;
    for (std::string& each : got)
      threads.emplace_back([&reader, &each] {
        for (int i = 0; i < 20; ++i) each = whole_checkpoint(reader);
      });
  }
  for (const std::string& each : got) EXPECT_EQ(each, wanted);
}

/// With slices above and below the size that is read directly, on a disk and in memory.
TEST(CheckpointReader, WithoutThePageCache) {
  for (const std::filesystem::path& place : {std::filesystem::temp_directory_path(), memory_folder()}) {
    const TempFolder folder(place);
    ModelConfig m = small_model("llama");
    m.vocab_size = 100'003;
    UnsyncedFs fs;
    const std::filesystem::path path = save_model(fs, folder.path() / "in", m);
    const Reader cached(path);
    Reader direct(path);
    direct.read_each_once();
    EXPECT_TRUE(full_tensors(direct) == full_tensors(cached));
    const StoredTensor& tensor = *find(direct.manifest(), "embedding.weight", kWeight);
    const std::uint64_t at = tensor.slices[0].offset + bytes_of(tensor, tensor.slices[0].box) - 1;
    {
      std::fstream file(path / rank_file_name(0), std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char other = static_cast<char>(file.get() ^ 1);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(other);
    }
    Reader damaged(path);
    damaged.read_each_once();
    EXPECT_THAT(message_of<CheckpointError>([&] { full_tensors(damaged); }),
                AllOf(HasSubstr("\"embedding.weight\" \"weight\""), HasSubstr("damaged")));
    EXPECT_THAT(message_of<CheckpointError>([&] { full_tensors(direct); }), HasSubstr("was changed"));
  }
}

TEST(CheckpointReader, ListsAllFaults) {
  const SavedExample saved;
  std::filesystem::remove(saved.path / "config.json");
  std::filesystem::resize_file(saved.path / "rank-00000.safetensors", 100);
  write_file(saved.path / "rank-00007.safetensors", "x");
  write_file(saved.path / "inner/most/weights.safetensors", "x");
  for (const char* name : {"notes.txt", "weights.safetensors", "inner/notes.txt"})
    write_file(saved.path / name, "anything else may be there");
  EXPECT_THAT(saved.refusal(), AllOf(HasSubstr("step-10: 4 faults"), HasSubstr("config.json: is missing"),
                                     HasSubstr("inner/most/weights.safetensors\": is not of this checkpoint"),
                                     HasSubstr("rank-00000.safetensors: has 100 bytes, not "),
                                     HasSubstr("rank-00007.safetensors: is not of this checkpoint"), HasSubstr("fix: "),
                                     Not(HasSubstr("notes"))));
}

/// An intact checkpoint of another user: the start ends, and nothing is renamed. At once, because waiting would not
/// help.
TEST(CheckpointReader, WithoutThePermissionNothingIsDamaged) {
  const SavedExample saved;
  ::chmod(saved.folder.path().c_str(), 0755);
  for (const std::string name : {"rank-00001.safetensors", "rank-00001.json", "config.json", kManifestName, ""}) {
    const std::filesystem::path path = saved.path / name;
    ::chmod(path.c_str(), 0);
    const Stopwatch watch;
    const auto opened_by_nobody = [&] {  // root may read every file: the thread alone becomes somebody else
      if (::geteuid() == 0) ::setfsuid(65534);
      return message_of<StorageError>([&] { const Reader reader(saved.path); });
    };
    const std::string said = std::async(std::launch::async, opened_by_nobody).get();
    EXPECT_THAT(said,
                AllOf(HasSubstr(name + ": cannot be opened: Permission denied"), HasSubstr("fix: make it readable")))
        << name;
    EXPECT_LT(watch.seconds(), 2) << "it is not tried again";
    ::chmod(path.c_str(), 0755);
  }
  const Reader reader(saved.path);
}

TEST(CheckpointReader, NoManifestIsNoCheckpoint) {
  const SavedExample saved;
  std::filesystem::remove(saved.path / kManifestName);
  EXPECT_THAT(saved.refusal(), HasSubstr("is not a checkpoint: it has no checkpoint_metadata.json"));
  EXPECT_THAT(message_of<StorageError>([&] { Reader(std::filesystem::path(std::string(300, 'x'))); }),
              HasSubstr("several times"))
      << "an error of the system, not of the checkpoint";
  EXPECT_THAT(message_of<CheckpointError>([&] { Reader(saved.folder / "nothing"); }),
              HasSubstr("nothing: No such file"));
  EXPECT_THAT(message_of<CheckpointError>([&] { Reader(saved.path / "config.json"); }), HasSubstr("is not a folder"));
}

TEST(CheckpointReader, ADamagedSliceIsNamed) {
  const SavedExample saved;
  const Reader reader(saved.path);
  const StoredTensor& tensor = *find(reader.manifest(), "layers.0.attention.qkv.weight", "exp_avg");
  const StoredSlice& slice = tensor.slices[2];
  std::string bytes = file_contents(saved.path / "rank-00001.safetensors");
  bytes[slice.offset + 5] ^= 1;
  write_file(saved.path / "rank-00001.safetensors", bytes);
  const Reader again(saved.path);  // no fault that can be seen without reading tensors
  std::vector<std::byte> out(bytes_of(tensor, slice.box));
  EXPECT_THAT(message_of<CheckpointError>([&] { again.read_slice(tensor, slice, out); }),
              AllOf(HasSubstr("step-10/rank-00001.safetensors: the bytes from " + std::to_string(slice.offset)),
                    HasSubstr("\"layers.0.attention.qkv.weight\" \"exp_avg\" [0:10, 12:24]"), HasSubstr("damaged")));
  again.read_slice(tensor, tensor.slices[3], std::span(out = std::vector<std::byte>(22 * 12 * 4)));
}

TEST(CheckpointReader, AFileThatChangesIsAnError) {
  const SavedExample saved;
  const Reader reader(saved.path);
  const std::filesystem::path file = saved.path / "rank-00000.safetensors";
  std::filesystem::resize_file(file, 200);
  EXPECT_THAT(
      message_of<CheckpointError>([&] { whole_checkpoint(reader); }),
      AllOf(HasSubstr("rank-00000.safetensors: was changed since the checkpoint was opened"), HasSubstr("200")));
  std::filesystem::remove(file);
  EXPECT_THAT(message_of<CheckpointError>([&] { whole_checkpoint(reader); }), HasSubstr("is missing"));
}

TEST(CheckpointReader, ALyingManifestIsRefused) {
  const auto refusal = [](const std::function<void(Manifest&)>& change) {
    const TempFolder folder;
    const ExampleFiles made = example_files({.step = 10, .number = 10});
    Manifest manifest = made.manifest;
    change(manifest);
    std::filesystem::create_directory(folder / "step-10");
    for (const auto& [name, bytes] : made.ranks) write_file(folder / "step-10/" += name, bytes);
    write_file(folder / "step-10/checkpoint_metadata.json", to_json(manifest));
    return message_of<CheckpointError>([&] { Reader(folder / "step-10"); });
  };
  EXPECT_EQ(refusal([](Manifest&) {}), "no error");
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors.pop_back(); }), HasSubstr("are in no slice"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].slices[0].offset += 4; }), HasSubstr("are in two slices"));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[3].slices[2].box[1] = {0, 12}; }),
              HasSubstr("[0:10, 0:12] overlaps another slice"));
  EXPECT_THAT(refusal([](Manifest& m) { m.training.step = 20; }), HasSubstr("is of step 20, not 10"));
  EXPECT_THAT(refusal([](Manifest& m) {
                m.id = example_id(11);
                m.files[0].header_hash.low ^= 1;
              }),
              HasSubstr("rank-00000.safetensors: is of another checkpoint"));
  EXPECT_THAT(refusal([](Manifest& m) { m.files.push_back(m.files[0]); }), HasSubstr("twice"));
}

}  // namespace
}  // namespace trireme::checkpoint
