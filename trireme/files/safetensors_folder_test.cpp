#include "trireme/files/safetensors_folder.hpp"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A file with tensors of 2 bytes; the bytes identify the name.
std::string shard(const std::vector<std::string>& names) {
  std::string header = "{", data;
  for (const std::string& tensor : names) {
    header += text(header.size() > 1 ? "," : "", "\"", tensor, R"(":{"dtype":"U8","shape":[2],"data_offsets":[)",
                   data.size(), ",", data.size() + 2, "]}");
    data += tensor + "!";
  }
  return safetensors_bytes(header + "}", data);
}

class Folder : public ::testing::Test {
 protected:
  void index(const std::string& map) { write_file(folder_ / kIndex, "{\"weight_map\":{" + map + "}}"); }
  void shards() {
    write_file(folder_ / "1.safetensors", shard({"c", "a"}));
    write_file(folder_ / "2.safetensors", shard({"b"}));
    index(R"("a":"1.safetensors","b":"2.safetensors","c":"1.safetensors")");
  }
  template <class E>
  std::string refusal() {
    return message_of<E>([&] { SafetensorsFolder opened(folder_.path()); });
  }
  const std::string kIndex = "model.safetensors.index.json";
  TempFolder folder_;
};

void expect_abc(const SafetensorsFolder& opened) {
  EXPECT_THAT(opened.names(), ElementsAre("a", "b", "c"));
  for (const char* tensor : {"a", "b", "c"}) {
    const auto found = opened.find(tensor);
    ASSERT_TRUE(found);
    EXPECT_EQ(as_text(found->file.bytes(found->entry)), std::string(tensor) + "!");
    std::string out(1, ' ');
    opened.read(tensor, std::vector<std::int64_t>{0}, std::vector<std::int64_t>{1},
                std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out, tensor);
  }
  EXPECT_FALSE(opened.find("d"));
  EXPECT_FALSE(opened.find(""));
}

TEST_F(Folder, OfOneFile) {
  write_file(folder_ / "model.safetensors", shard({"c", "a", "b"}));
  expect_abc(SafetensorsFolder(folder_.path()));
  expect_abc(SafetensorsFolder(folder_ / "model.safetensors"));
  EXPECT_THAT(message_of<CheckpointError>([&] { SafetensorsFolder(folder_.path()).at("d"); }),
              HasSubstr(": there is no tensor \"d\" among its 3"));
}

TEST_F(Folder, OfShards) {
  shards();
  SafetensorsFolder opened(folder_.path());
  expect_abc(opened);
  const SafetensorsFolder moved = std::move(opened);
  expect_abc(moved);
  EXPECT_EQ(moved.files().size(), 2U);
  EXPECT_EQ(moved.at("b").file.shown(), (folder_ / "2.safetensors").string());
}

TEST_F(Folder, OneFileComesBeforeAnIndex) {
  write_file(folder_ / "model.safetensors", shard({"c", "a", "b"}));
  write_file(folder_ / kIndex, "not JSON");
  expect_abc(SafetensorsFolder(folder_.path()));
}

TEST_F(Folder, WhatAPersonNamesMayBeALink) {
  shards();
  const TempFolder other;
  fs::create_directory_symlink(folder_.path(), other / "folder");
  expect_abc(SafetensorsFolder(other / "folder"));
  write_file(other / "file", shard({"c", "a", "b"}));
  fs::create_symlink("file", other / "model.safetensors");
  expect_abc(SafetensorsFolder(other.path()));
  fs::create_symlink(other / "file", other / "anything");
  expect_abc(SafetensorsFolder(other / "anything"));
}

TEST_F(Folder, ASnapshotOfTheCacheIsOpened) {
  const TempFolder hub;
  fs::create_directories(hub / "blobs");
  fs::create_directories(hub / "snapshots/x");
  const auto add = [&](const std::string& name, char digit, const std::string& bytes) {
    const std::string hash(64, digit);
    write_file(hub / ("blobs/" + hash), bytes);
    fs::create_symlink("../../blobs/" + hash, hub / ("snapshots/x/" + name));
  };
  add("model.safetensors", '4', shard({"c", "a", "b"}));
  expect_abc(SafetensorsFolder(hub / "snapshots/x"));
  fs::remove(hub / "snapshots/x/model.safetensors");
  add("1.safetensors", '1', shard({"c", "a"}));
  add("2.safetensors", '2', shard({"b"}));
  add(kIndex, '3', R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors","c":"1.safetensors"}})");
  expect_abc(SafetensorsFolder(hub / "snapshots/x"));
  fs::remove(hub / ("blobs/" + std::string(64, '2')));
  EXPECT_THAT(message_of<CheckpointError>([&] { SafetensorsFolder opened(hub / "snapshots/x"); }),
              HasSubstr("1 of the 2 files of model.safetensors.index.json are missing: \"2.safetensors\""));
}

TEST_F(Folder, LinksThatLeaveAreRefused) {
  shards();
  const TempFolder other;
  write_file(other / "b", shard({"b"}));
  fs::remove(folder_ / "2.safetensors");
  fs::create_symlink(other / "b", folder_ / "2.safetensors");
  EXPECT_THAT(refusal<SecurityError>(),
              AllOf(HasSubstr(": the file \"2.safetensors\" of model.safetensors.index.json is a link out of the"),
                    HasSubstr("\n  fix: ")));
}

/// The single file and the index follow the same rule as shards.
TEST_F(Folder, LinksThatLeaveAreRefusedForEveryFile) {
  const TempFolder other;
  write_file(other / "whole", shard({"a", "b", "c"}));
  fs::create_symlink(other / "whole", folder_ / "model.safetensors");
  EXPECT_THAT(refusal<SecurityError>(),
              AllOf(HasSubstr(": the file \"model.safetensors\" is a link out of the folder"), HasSubstr("\n  fix: ")));
  fs::remove(folder_ / "model.safetensors");
  shards();
  fs::rename(folder_ / kIndex, other / "index");
  fs::create_symlink(other / "index", folder_ / kIndex);
  EXPECT_THAT(refusal<SecurityError>(), HasSubstr(": the file \"model.safetensors.index.json\" is a link out of the"));
}

TEST_F(Folder, PathsInTheMapAreRefused) {
  shards();
  write_file(folder_ / "x", "");
  index(R"("a":"../1.safetensors")");
  EXPECT_THAT(refusal<SecurityError>(), HasSubstr("weight_map gives tensor \"a\" to the file \"../1.safetensors\""));
}

TEST_F(Folder, AllMissingFilesAreNamed) {
  shards();
  index(R"("a":"1.safetensors","b":"3.safetensors","c":"4.safetensors")");
  EXPECT_THAT(refusal<CheckpointError>(), HasSubstr(": 2 of the 3 files of model.safetensors.index.json are missing: "
                                                    "\"3.safetensors\", \"4.safetensors\"\n  fix: fetch them"));
  std::string many = R"("a":"1.safetensors")";
  for (int i = 10; i < 40; ++i) many += text(",\"t", i, "\":\"m", i, ".safetensors\"");
  index(many);
  EXPECT_THAT(refusal<CheckpointError>(), AllOf(HasSubstr("30 of the 31 files"),
                                                HasSubstr("\"m29.safetensors\" and 10 more"), Not(HasSubstr("m30"))));
}

TEST_F(Folder, TheMapAndTheFilesMustAgree) {
  shards();
  index(R"("a":"2.safetensors","b":"1.safetensors","c":"1.safetensors")");
  EXPECT_THAT(refusal<CheckpointError>(), HasSubstr(": 2 tensors of weight_map are not in the file that it names: "
                                                    "\"a in 2.safetensors\", \"b in 1.safetensors\""));
  shards();
  write_file(folder_ / "2.safetensors", shard({"b", "c"}));
  EXPECT_THAT(refusal<CheckpointError>(),
              HasSubstr(": tensor \"c\" is in \"2.safetensors\" too, but weight_map gives it to \"1.safetensors\""));
  write_file(folder_ / "2.safetensors", shard({"b", "d"}));  // d is not in the map: ignored
  expect_abc(SafetensorsFolder(folder_.path()));
}

TEST_F(Folder, ABrokenShardIsNamed) {
  shards();
  write_file(folder_ / "2.safetensors", "1234");
  EXPECT_THAT(refusal<CheckpointError>(), HasSubstr((folder_ / "2.safetensors").string() + ": 4 bytes"));
  fs::remove(folder_ / "2.safetensors");
  fs::create_directory(folder_ / "2.safetensors");
  EXPECT_THAT(refusal<CheckpointError>(), HasSubstr("2.safetensors is not a regular file"));
}

TEST_F(Folder, WithoutAModelSaysSo) {
  EXPECT_THAT(refusal<CheckpointError>(), HasSubstr(": holds neither model.safetensors nor model.safetensors.index"));
  EXPECT_THAT(refusal<CheckpointError>(), Not(HasSubstr("fix")));
  write_file(folder_ / "pytorch_model.bin", "");
  EXPECT_THAT(refusal<CheckpointError>(), HasSubstr("\n  fix: save the model as safetensors"));
  EXPECT_THAT(message_of<CheckpointError>([&] { SafetensorsFolder opened(folder_ / "none"); }),
              HasSubstr("none: cannot be opened: No such file"));
  fs::create_symlink("gone", folder_ / "model.safetensors");
  EXPECT_THAT(refusal<CheckpointError>(), HasSubstr("model.safetensors: cannot be opened: No such file"));
}

}  // namespace
}  // namespace trireme::files
