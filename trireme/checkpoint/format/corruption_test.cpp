// No damage to a checkpoint goes unnoticed, and no file outside of its folder is opened.
#include <cstdlib>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/checkpoint/format/reader.hpp"
#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/files_helpers.hpp"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Contents = std::map<std::string, std::string>;

Contents contents_of(const std::filesystem::path& folder) {
  Contents out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) out[entry.path().lexically_relative(folder)] = file_contents(entry.path());
  return out;
}

/// step-10, and what is wrong with it when all of it is read.
class Corruption : public ::testing::Test {
 protected:
  Corruption() {
    save_example(files::real_fs(), folder_.path(), {.step = 10, .number = 10});
    good_ = contents_of(path_);
    manifest_ = Reader(path_).manifest();
  }

  std::string verdict() const {
    try {
      whole_checkpoint(Reader(path_));
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    } catch (const SecurityError& error) {
      return text("security: ", error.what());
    }
  }

  /// Of the checkpoint with other contents of one file, which is then put back.
  std::string verdict_with(const std::string& file, const std::string& contents) const {
    write_file(path_ / file, contents);
    const std::string out = verdict();
    write_file(path_ / file, good_.at(file));
    return out;
  }

  /// The tensor whose bytes are at `offset` of the file; "" for the header and for other files.
  std::string tensor_at(const std::string& file, std::uint64_t offset) const {
    for (const StoredTensor& tensor : manifest_.tensors)
      for (const StoredSlice& slice : tensor.slices)
        if (manifest_.files[slice.file].name == file && offset >= slice.offset &&
            offset < slice.offset + bytes_of(tensor, slice.box))
          return text('"', tensor.name, "\" \"", tensor.kind, "\" ", str(slice.box));
    return "";
  }

  /// A random place: each byte of all files is as likely as any other.
  std::pair<std::string, std::size_t> random_place() {
    std::size_t total = 0;
    for (const auto& [name, contents] : good_) total += contents.size();
    std::size_t at = random_() % total;
    for (const auto& [name, contents] : good_) {
      if (at < contents.size()) return {name, at};
      at -= contents.size();
    }
    return {};
  }

  static int trials(int usual) {
    const char* number = std::getenv("TRIREME_CORRUPTIONS");  // make campaign
    return number == nullptr ? usual : std::atoi(number);
  }

  TempFolder folder_{memory_folder()};
  std::filesystem::path path_ = folder_ / "step-10";
  Contents good_;
  Manifest manifest_;
  std::mt19937_64 random_{5};
};

TEST_F(Corruption, EveryFlippedBitIsFound) {
  int in_tensors = 0;
  for (int trial = 0; trial < trials(1000); ++trial) {
    const auto [file, at] = random_place();
    std::string bytes = good_.at(file);
    bytes[at] = static_cast<char>(bytes[at] ^ 1 << random_() % 8);
    const std::string tensor = tensor_at(file, at);
    in_tensors += tensor.empty() ? 0 : 1;
    ASSERT_THAT(verdict_with(file, bytes), AllOf(HasSubstr(file), HasSubstr(tensor)))
        << "byte " << at << " of " << file;
  }
  EXPECT_GT(in_tensors, trials(1000) / 4);
  EXPECT_LT(in_tensors, trials(1000) * 9 / 10);
  EXPECT_EQ(verdict(), "");
}

TEST_F(Corruption, EveryCutZeroedOrLongerFileIsFound) {
  for (int trial = 0; trial < trials(1000) / 4; ++trial) {
    const auto [file, at] = random_place();
    const std::string& good = good_.at(file);
    ASSERT_THAT(verdict_with(file, good.substr(0, at)), HasSubstr(file)) << "cut at " << at;
    ASSERT_THAT(verdict_with(file, good + std::string(1 + random_() % 5000, '\0')), HasSubstr(file));
    const std::size_t page = random_() % 2 == 0 ? 512 : 4096, begin = at / page * page;
    std::string zeroed = good;
    std::fill(zeroed.begin() + static_cast<std::ptrdiff_t>(begin),
              zeroed.begin() + static_cast<std::ptrdiff_t>(std::min(begin + page, good.size())), '\0');
    ASSERT_THAT(verdict_with(file, zeroed), HasSubstr(file)) << page << " zeros at " << begin;
  }
  EXPECT_EQ(verdict(), "");
}

TEST_F(Corruption, EveryMissingFileIsFound) {
  for (const auto& [name, contents] : good_) {
    std::filesystem::remove(path_ / name);
    EXPECT_THAT(verdict(), HasSubstr(name));
    write_file(path_ / name, contents);
  }
  EXPECT_EQ(verdict(), "");
}

TEST_F(Corruption, FilesInTheWrongPlaceAreFound) {
  save_example(files::real_fs(), folder_.path(), {.step = 20, .number = 20});
  save_example(files::real_fs(), folder_ / "other", {.step = 10, .number = 11});  // the same shape and step
  const Contents later = contents_of(folder_ / "step-20"), same = contents_of(folder_ / "other/step-10");
  const std::string rank0 = rank_file_name(0), rank1 = rank_file_name(1);
  EXPECT_THAT(verdict_with(rank0, later.at(rank0)), AllOf(HasSubstr(rank0), HasSubstr("is of another checkpoint")));
  EXPECT_THAT(verdict_with(rank0, same.at(rank0)), AllOf(HasSubstr(rank0), HasSubstr("is of another checkpoint")));
  EXPECT_THAT(verdict_with(rank0, good_.at(rank1)), HasSubstr(rank0));
  EXPECT_THAT(verdict_with("config.json", later.at("config.json")), HasSubstr("config.json"));
  EXPECT_THAT(verdict_with(kManifestName, later.at(kManifestName)),
              AllOf(HasSubstr("is of step 20, not 10"), HasSubstr(rank0), HasSubstr(rank1)));
  EXPECT_THAT(verdict_with(kManifestName, same.at(kManifestName)), AllOf(HasSubstr(rank0), HasSubstr(rank1)));

  write_file(path_ / rank0, good_.at(rank1));
  EXPECT_THAT(verdict_with(rank1, good_.at(rank0)), AllOf(HasSubstr(rank0), HasSubstr(rank1)));  // swapped
  write_file(path_ / rank0, good_.at(rank0));
  write_file(path_ / rank_file_name(2), good_.at(rank1));
  EXPECT_THAT(verdict(), HasSubstr("rank-00002.safetensors: is not of this checkpoint"));
  std::filesystem::remove(path_ / rank_file_name(2));
  for (const auto& [name, contents] : later) write_file(path_ / name, contents);  // a whole folder under another name
  EXPECT_THAT(verdict(), HasSubstr("is of step 20, not 10"));
}

TEST_F(Corruption, NamesThatLeaveTheFolderAreRefused) {
  const TempFolder outside(memory_folder());
  write_file(outside / "file", good_.at("config.json"));
  for (const std::string& name :
       {std::string("../") + outside.path().filename().string() + "/file", (outside / "file").string(),
        std::string("../latest"), std::string(".."), std::string("."), std::string("a/../b"), std::string("/a"),
        std::string("a//b"), std::string("a/"), std::string("a\nb"), std::string(5000, 'x'), std::string("")}) {
    Manifest manifest = manifest_;
    for (StoredFile& file : manifest.files)
      if (file.name == "config.json") file.name = name;
    EXPECT_THAT(verdict_with(kManifestName, to_json(manifest)), HasSubstr("security: ")) << name;
  }
}

TEST_F(Corruption, LinksAreNotFollowed) {
  const TempFolder outside(memory_folder());
  for (const auto& [name, contents] : good_) {
    std::filesystem::create_directories((outside / name).parent_path());
    write_file(outside / name, contents);  // what the link leads to would be right
    std::filesystem::remove(path_ / name);
    std::filesystem::create_symlink(outside / name, path_ / name);
    EXPECT_THAT(verdict(), AllOf(HasSubstr("security: "), HasSubstr(name), HasSubstr("is a symlink")));
    std::filesystem::remove(path_ / name);
    write_file(path_ / name, contents);
  }
  ASSERT_EQ(verdict(), "");
  std::filesystem::rename(path_ / "inner", outside / "folder");
  std::filesystem::create_directory_symlink(outside / "folder", path_ / "inner");
  EXPECT_THAT(verdict(), AllOf(HasSubstr("security: "), HasSubstr("inner/most/notes.json"), HasSubstr("is a symlink")));
  std::filesystem::remove(path_ / "inner");
  std::filesystem::rename(outside / "folder", path_ / "inner");
  ASSERT_EQ(verdict(), "");
  std::filesystem::rename(path_, outside / "step-10");
  std::filesystem::create_directory_symlink(outside / "step-10", path_);
  EXPECT_THAT(verdict(), AllOf(HasSubstr("security: "), HasSubstr("is a symlink")));
  EXPECT_THAT(message_of<SecurityError>([&] { const Reader reader(path_ / ""); }), HasSubstr("is a symlink"));
  EXPECT_THAT(why_not_valid(path_), HasSubstr("is a symlink"));

  // A link that is put in place of a file while the checkpoint is open.
  const Reader reader(outside / "step-10");
  const std::filesystem::path rank = outside / ("step-10/" + rank_file_name(0));
  std::filesystem::rename(rank, outside / "moved");
  std::filesystem::create_symlink(outside / "moved", rank);
  EXPECT_THAT(message_of<SecurityError>([&] { whole_checkpoint(reader); }), HasSubstr("is a symlink"));
}

TEST_F(Corruption, WhatIsNotAFileIsRefusedAtOnce) {
  for (const auto& [name, contents] : good_) {
    std::filesystem::remove(path_ / name);
    ASSERT_EQ(::mkfifo((path_ / name).c_str(), 0644), 0);  // opening it to read would wait for a writer
    EXPECT_THAT(verdict(), AllOf(HasSubstr(name), HasSubstr("not a regular file")));
    std::filesystem::remove(path_ / name);
    std::filesystem::create_directory(path_ / name);
    EXPECT_THAT(verdict(), HasSubstr(name));
    std::filesystem::remove(path_ / name);
    write_file(path_ / name, contents);
  }
  EXPECT_EQ(verdict(), "");
}

}  // namespace
}  // namespace trireme::checkpoint
