#include "trireme/files/safetensors_folder_write.hpp"

#include <map>
#include <set>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/process_limits.hpp"
#include "trireme/files/safetensors_folder.hpp"
#include "trireme/testing/file_size_limit.hpp"
#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Listing = std::set<std::string>;

class FolderWriter : public ::testing::Test {
 protected:
  /// Tensors of 10, 6, 3, 25, 0 and 4 bytes.
  static std::vector<SafetensorsTensor> tensors() {
    using enum SafetensorsDtype;
    return {{"head", U8, {10}},  {"b", BF16, {3}},   {"c", I8, {3}},
            {"big", U8, {5, 5}}, {"none", F32, {0}}, {"a", F32, {}}};
  }
  static std::string contents_of(const SafetensorsTensor& tensor) {
    return std::string(bytes_of(tensor), tensor.name[0]);
  }
  static void append_all(SafetensorsFolderWriter& writer) {
    for (const SafetensorsTensor& tensor : tensors()) {
      const std::string contents = contents_of(tensor);
      const auto bytes = std::as_bytes(std::span(contents));
      writer.append(tensor.name, bytes.first(bytes.size() / 2));
      writer.append(tensor.name, bytes.subspan(bytes.size() / 2));
    }
  }
  void expect_all() const {
    const SafetensorsFolder read(out_);
    EXPECT_EQ(read.names().size(), tensors().size());
    for (const SafetensorsTensor& tensor : tensors()) {
      const auto found = read.at(tensor.name);
      EXPECT_EQ(as_text(found.file.bytes(found.entry)), contents_of(tensor));
      EXPECT_EQ(found.entry.shape, tensor.shape);
      EXPECT_EQ(found.file.metadata(), pytorch_metadata());
    }
  }
  Listing in(const fs::path& folder) const {
    Listing names;
    for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
    return names;
  }
  std::string refusal(const fs::path& folder) const {
    return message_of<CheckpointError>([&] { SafetensorsFolderWriter writer(folder, tensors()); });
  }

  TempFolder parent_;
  fs::path out_ = parent_ / "out";
};

TEST(SafetensorsShards, AreFilledInOrder) {
  using enum SafetensorsDtype;
  const std::vector<SafetensorsTensor> tensors = {{"a", U8, {6}}, {"b", U8, {4}}, {"c", U8, {1}}, {"d", U8, {30}},
                                                  {"e", U8, {0}}, {"f", U8, {5}}, {"g", U8, {5}}};
  const std::vector<SafetensorsShard> wanted = {{"model-00001-of-00004.safetensors", 0, 2, 10},
                                                {"model-00002-of-00004.safetensors", 2, 3, 1},
                                                {"model-00003-of-00004.safetensors", 3, 4, 30},
                                                {"model-00004-of-00004.safetensors", 4, 7, 10}};
  EXPECT_EQ(safetensors_shards(tensors, 10), wanted);
  EXPECT_EQ(safetensors_shards(tensors), (std::vector<SafetensorsShard>{{"model.safetensors", 0, 7, 51}}));
  EXPECT_EQ(safetensors_shards(tensors, 51).size(), 1U);
  EXPECT_EQ(safetensors_shards(tensors, 50).size(), 2U);
  EXPECT_EQ(safetensors_shards(tensors, 0).size(), 7U);
  EXPECT_EQ(safetensors_shards({}), (std::vector<SafetensorsShard>{{"model.safetensors", 0, 0, 0}}));
}

TEST_F(FolderWriter, OneFile) {
  SafetensorsFolderWriter writer(out_, tensors());
  writer.add_file("config.json", "{}");
  append_all(writer);
  EXPECT_FALSE(fs::exists(out_));
  writer.publish();
  EXPECT_EQ(in(out_), (Listing{"config.json", "model.safetensors"}));
  EXPECT_EQ(in(parent_.path()), (Listing{"out"}));
  EXPECT_EQ(file_contents(out_ / "config.json"), "{}");
  expect_all();
}

TEST_F(FolderWriter, Shards) {
  SafetensorsFolderWriter writer(out_, tensors(), 16);
  append_all(writer);
  writer.add_file("tokenizer.json", std::string(1'000'000, ' '));
  writer.publish();
  EXPECT_EQ(in(out_), (Listing{"model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                               "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                               "model.safetensors.index.json", "tokenizer.json"}));
  expect_all();
  EXPECT_EQ(file_contents(out_ / "model.safetensors.index.json"), R"({
  "metadata": {
    "total_size": 48
  },
  "weight_map": {
    "head": "model-00001-of-00004.safetensors",
    "b": "model-00001-of-00004.safetensors",
    "c": "model-00002-of-00004.safetensors",
    "big": "model-00003-of-00004.safetensors",
    "none": "model-00004-of-00004.safetensors",
    "a": "model-00004-of-00004.safetensors"
  }
}
)");
}

TEST_F(FolderWriter, IsThereWithEverythingOrNotAtAll) {
  SafetensorsFolderWriter writer(out_, tensors(), 16);
  append_all(writer);
  int steps = 0;
  writer.publish([&] {
    ++steps;
    EXPECT_FALSE(fs::exists(out_));
  });
  EXPECT_GT(steps, 5);
  expect_all();
}

/// The folder may be a mount point: it must not be replaced.
TEST_F(FolderWriter, AnEmptyFolderIsFilledWithTheIndexAfterTheShards) {
  fs::create_directory(out_);
  fs::permissions(out_, fs::perms::owner_all);
  SafetensorsFolderWriter writer(out_, tensors(), 16);
  append_all(writer);
  writer.add_file("config.json", "{}");
  EXPECT_EQ(in(parent_.path()), (Listing{"out"}));
  writer.publish([&] {
    if (fs::exists(out_ / "config.json")) expect_all();
    if (fs::exists(out_ / "model.safetensors.index.json")) expect_all();
  });
  expect_all();
  EXPECT_EQ(in(out_).size(), 6U);
  EXPECT_EQ(fs::status(out_).permissions(), fs::perms::owner_all);
}

TEST_F(FolderWriter, NothingIsOverwritten) {
  fs::create_directory(out_);
  write_file(out_ / "x", "old");
  EXPECT_EQ(refusal(out_), out_.string() +
                               ": already exists and is not empty: a checkpoint is never overwritten\n  fix: "
                               "write to another folder, or remove this one");
  EXPECT_THAT(refusal(out_ / "x"),
              AllOf(HasSubstr("x: a model of 48 bytes cannot be written here\n  it is not a folder\n  fix: ")));
  EXPECT_EQ(in(out_), (Listing{"x"}));
}

TEST_F(FolderWriter, WhatHasComeMeanwhileIsNotOverwritten) {
  for (const bool was_there : {false, true}) {
    if (was_there) fs::create_directory(out_);
    SafetensorsFolderWriter writer(out_, tensors());
    append_all(writer);
    fs::create_directory(out_);
    write_file(out_ / "x", "new");
    EXPECT_THAT(message_of<CheckpointError>([&] { writer.publish(); }), HasSubstr("already exists and is not empty"));
    EXPECT_EQ(in(out_), (Listing{"x"}));
    EXPECT_EQ(in(parent_.path()), (Listing{"out"}));
    fs::remove_all(out_);
  }
}

TEST_F(FolderWriter, DroppedItLeavesNothing) {
  for (const bool was_there : {false, true}) {
    if (was_there) fs::create_directory(out_);
    {
      SafetensorsFolderWriter writer(out_, tensors(), 16);
      append_all(writer);
    }
    EXPECT_EQ(in(parent_.path()), was_there ? Listing{"out"} : Listing{});
  }
  {
    SafetensorsFolderWriter writer(parent_ / "x/y/z", tensors());
    EXPECT_TRUE(fs::exists(parent_ / "x/y"));
  }
  EXPECT_EQ(in(parent_.path()), (Listing{"out"}));
  for (int stop = 0; stop < 8; ++stop) {  // an error between two renames
    SafetensorsFolderWriter writer(out_, tensors(), 16);
    append_all(writer);
    const auto before_step = [&, step = 0]() mutable {
      if (step++ == stop) throw DataError("stopped");
    };
    const std::string message = message_of<CheckpointError>([&] { writer.publish(before_step); });
    if (message == "no error") {
      EXPECT_GE(stop, 6);
      break;
    }
    EXPECT_TRUE(fs::is_empty(out_)) << stop;
  }
}

TEST_F(FolderWriter, AFullDiskIsTold) {
  const std::vector<SafetensorsTensor> large = {{"small", SafetensorsDtype::U8, {5}},
                                                {"large", SafetensorsDtype::U8, {2'000'000}}};
  const std::string bytes(2'000'000, 'x');
  for (const bool was_there : {false, true}) {
    if (was_there) fs::create_directory(out_);
    SafetensorsFolderWriter writer(out_, large, 1000);
    const FileSizeLimit limit(1'000'000);
    writer.append("small", std::as_bytes(std::span(bytes)).first(5));
    EXPECT_EQ(message_of<CheckpointError>([&] { writer.append("large", std::as_bytes(std::span(bytes))); }),
              text(out_.string(), ": a model of 2,000,005 bytes cannot be written here\n  ", out_.string(),
                   "/model-00002-of-00002.safetensors: cannot write 2000000 bytes: ", write_error_text(EFBIG),
                   "\n  fix: ulimit -f unlimited"));
    EXPECT_EQ(in(parent_.path()), was_there ? Listing{"out"} : Listing{}) << "before the writer is gone";
    EXPECT_THROW(writer.append("large", {}), InternalError);
    EXPECT_THROW(writer.publish(), InternalError);
  }
  EXPECT_TRUE(fs::is_empty(out_));
}

TEST_F(FolderWriter, AFullDiskAtTheEndIsTold) {
  SafetensorsFolderWriter writer(out_, tensors());
  append_all(writer);
  writer.add_file("tokenizer.json", std::string(2'000'000, 'x'));
  const FileSizeLimit limit(1'000'000);
  EXPECT_THAT(message_of<CheckpointError>([&] { writer.publish(); }),
              HasSubstr("out/tokenizer.json: cannot write 2000000 bytes: File too large"));
  EXPECT_EQ(in(parent_.path()), Listing{});
}

TEST_F(FolderWriter, AFolderThatCannotBeMadeIsTold) {
  write_file(parent_ / "file", "");
  EXPECT_THAT(refusal(parent_ / "file/out"),
              AllOf(HasSubstr("file/out: a model of 48 bytes cannot be written here\n  "), HasSubstr("Not a directory"),
                    HasSubstr("\n  fix: ")));
  fs::create_symlink("nowhere", parent_ / "link");
  EXPECT_THAT(refusal(parent_ / "link"), HasSubstr("it is a link to a path that does not exist"));
  EXPECT_THAT(refusal(""), HasSubstr("a folder without a name"));
}

TEST_F(FolderWriter, ManyWaysToNameAFolder) {
  fs::create_directory(parent_ / "there");
  fs::create_symlink("there", parent_ / "link");
  for (const char* name : {"a/", "b/.", "c/../d", "e/f/g", "link"}) {
    SafetensorsFolderWriter writer(parent_ / name, tensors());
    append_all(writer);
    writer.publish();
  }
  EXPECT_EQ(in(parent_.path()), (Listing{"a", "b", "d", "e", "link", "there"}));
  for (const char* name : {"a", "b", "d", "e/f/g", "there"})
    EXPECT_EQ(in(parent_ / name), Listing{"model.safetensors"});
}

TEST_F(FolderWriter, TensorsComeInTheirOrder) {
  const std::string bytes(100, 'x');
  const auto refused = [&](const std::vector<std::pair<std::string, std::size_t>>& pieces) {
    return message_of<InternalError>([&] {
      SafetensorsFolderWriter writer(out_, tensors(), 16);
      for (const auto& [tensor, count] : pieces) writer.append(tensor, std::as_bytes(std::span(bytes)).first(count));
      writer.publish();
    });
  };
  EXPECT_THAT(refused({{"head", 10}, {"c", 3}}), HasSubstr("tensor \"b\" has 0 of its 6 bytes when the file ends"));
  EXPECT_THAT(refused({{"b", 6}}), HasSubstr("tensor \"head\" has 0 of its 10 bytes when bytes of \"b\" come"));
  EXPECT_THAT(refused({{"head", 10}, {"b", 6}, {"c", 4}}), HasSubstr("tensor \"c\" has 3 bytes; 4 more"));
  EXPECT_THAT(refused({{"head", 10}, {"b", 6}, {"head", 1}}), HasSubstr("bytes of tensor \"head\" come, which is not"));
  EXPECT_THAT(refused({{"head", 10}, {"b", 6}, {"c", 3}}),
              HasSubstr("tensor \"big\" has 0 of its 25 bytes when the fi"));
  EXPECT_THAT(refused({}), HasSubstr("tensor \"head\" has 0 of its 10 bytes"));
  EXPECT_TRUE(fs::is_empty(parent_.path()));
}

TEST_F(FolderWriter, BadTensorsAndFilesAreRefusedAtOnce) {
  using enum SafetensorsDtype;
  const auto refused = [&](const std::vector<SafetensorsTensor>& bad) {
    return message_of<InternalError>([&] { SafetensorsFolderWriter writer(out_, bad, 1); });
  };
  EXPECT_THAT(refused({{"a", U8, {1}}, {"b", U8, {1}}, {"a", U8, {1}}}), HasSubstr("gives tensor \"a\" twice"));
  EXPECT_THAT(refused({{"a", U8, {1}}, {"/b", U8, {1}}}), HasSubstr("must not start with /"));
  SafetensorsFolderWriter writer(out_, tensors(), 16);
  for (const char* name : {"", "a/b", "..", "model.safetensors.index.json", "model-00002-of-00004.safetensors"})
    EXPECT_THROW(writer.add_file(name, ""), InternalError) << name;
  writer.add_file("config.json", "");
  EXPECT_THROW(writer.add_file("config.json", ""), InternalError);
  EXPECT_EQ(in(parent_.path()).size(), 1U);
}

}  // namespace
}  // namespace trireme::files
