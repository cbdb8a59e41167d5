#include "trireme/checkpoint/format/manifest.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/checkpoint_helpers.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The text of a manifest with `from` replaced by `to`, and the right hash.
std::string changed_manifest(const std::string& from, const std::string& to) {
  std::string json = to_json(example_files({}).manifest);
  const std::size_t begin = json.find("\"checkpoint\": ") + 14;
  std::string body = json.substr(begin, json.size() - begin - 2);
  const std::size_t at = body.find(from);
  require(at != std::string::npos, "the manifest has no ", from);
  body.replace(at, from.size(), to);
  json.replace(10, 32, str(files::xxh3(std::as_bytes(std::span(body)))));
  return json.substr(0, begin) + body + "}\n";
}

std::string manifest_refusal(const std::string& from, const std::string& to) {
  return message_of<CheckpointError>([&] { parse_manifest(changed_manifest(from, to), "x"); });
}

TEST(Manifest, IsReadBackAsItWasWritten) {
  Manifest manifest = example_files({.ranks = 3}).manifest;
  manifest.training.loss_scale = {.scale = 65536, .good_steps = 3, .patience = 2};
  manifest.training.loss_window = {0.1, -1e300};
  manifest.config["strange \"key\""] = "\n\u00e9";
  EXPECT_EQ(parse_manifest(to_json(manifest), "x"), manifest);
  EXPECT_EQ(manifest_refusal("\"version\": 2", "\"version\": 1"), "no error");
}

TEST(Manifest, EveryErrorIsOfACheckpoint) {
  EXPECT_THAT(manifest_refusal("\"version\": 2", "\"version\": 3"),
              AllOf(HasSubstr("x: a checkpoint of version 3"), HasSubstr("trireme test")));
  EXPECT_THAT(manifest_refusal("\"version\": 2", "\"version\": 3, \"x\": {"), HasSubstr("x: "));
  EXPECT_THAT(manifest_refusal("\"program\": \"trireme test\"", "\"program\": 5"),
              HasSubstr("\"program\" has a value"));
  EXPECT_THAT(manifest_refusal("[8,6]", "[8,-6]"), HasSubstr("a size is negative"));
  EXPECT_THAT(manifest_refusal("[8,6]", "[1152921504606846976,6]"), HasSubstr("more than 2^60 elements"));
  EXPECT_THAT(manifest_refusal("[8,6]", "[4,6]"), HasSubstr("outside of"));
  EXPECT_THAT(manifest_refusal("[8,6]", "[9,6]"), HasSubstr("the slices have 48 elements, the tensor 54"));
  EXPECT_THAT(manifest_refusal("\"4:8,0:6\"", "\"0:8,0:6\""), HasSubstr("more than its 48 elements"));
  for (const char* box :
       {"\"\"", "\"4:8\"", "\"4:8,0:6,0:1\"", "\"8:4,0:6\"", "\"4:8,0:6,\"", "\"a\"", "\"-1:8,0:6\"", "7"})
    EXPECT_THAT(manifest_refusal("\"4:8,0:6\"", box), HasSubstr("x: ")) << box;
}

TEST(Manifest, AnotherVersionIsToldEvenIfItsProgramIsNotAText) {
  std::string json = changed_manifest("\"program\": \"trireme test\"", "\"program\": 5");
  json.replace(json.find("\"version\": 2"), 12, "\"version\": 3");
  const std::size_t begin = json.find("\"checkpoint\": ") + 14;
  const std::string body = json.substr(begin, json.size() - begin - 2);
  json.replace(10, 32, str(files::xxh3(std::as_bytes(std::span(body)))));
  EXPECT_THAT(message_of<CheckpointError>([&] { parse_manifest(json, "x"); }), HasSubstr("x: "));
}

}  // namespace
}  // namespace trireme::checkpoint
