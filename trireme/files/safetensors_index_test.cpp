#include "trireme/files/safetensors_index.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/files_helpers.hpp"

namespace trireme::files {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string map_of(const std::string& entries) { return "{\"weight_map\":{" + entries + "}}"; }

TEST(SafetensorsIndex, GivesTensorsByNameAndFilesInOrder) {
  const SafetensorsIndex index = parse_safetensors_index(
      R"( {"metadata": {"total_size": 12, "weight_map": {"x": [1, {"y": null}]}, "f": -1.5}, "list": [true, {"a": []}],
           "weight_map": {"b": "2.safetensors", "c": "1.safetensors", "a": "2.safetensors"}, "after": "text"} )",
      "x");
  EXPECT_THAT(index.files, ElementsAre("2.safetensors", "1.safetensors"));
  std::vector<std::pair<std::string, std::uint32_t>> items;
  for (const auto& item : index.items) items.emplace_back(item.tensor, item.file);
  EXPECT_THAT(items, ElementsAre(std::pair("a", 0), std::pair("b", 0), std::pair("c", 1)));
}

TEST(SafetensorsIndex, PathsAreRefusedAsAnAttack) {
  const std::vector<std::string> paths = {"../x.safetensors", "/etc/x.safetensors",   "a/x.safetensors", "..", "",
                                          "./x.safetensors",  "x\\u0000.safetensors", "x.safetensors/"};
  for (const std::string& path : paths) {
    EXPECT_THAT(message_of<SecurityError>([&] { parse_safetensors_index(map_of("\"t\":\"" + path + "\""), "x"); }),
                StartsWith("x: weight_map gives tensor \"t\" to the file \"" + path +
                           "\", which is not the name of a file in this folder\n  fix: "))
        << path;
  }
}

TEST(SafetensorsIndex, EveryRuleIsKept) {
  const std::vector<std::pair<std::string, std::string>> all = {
      {"", "x: must be an object"},
      {"[]", "x: must be an object"},
      {"{}", "x: has no weight_map"},
      {"{\"metadata\":{\"weight_map\":{}}}", "x: has no weight_map"},
      {"{\"weight_map\":[]}", "x: weight_map must be an object, not a list"},
      {"{\"weight_map\":\"\"}", "x: weight_map must be an object, not a text"},
      {"{\"weight_map\":null}", "x: weight_map must be an object, not null"},
      {"{\"weight_map\":1}", "x: weight_map must be an object, not a number"},
      {"{\"weight_map\":{},\"weight_map\":{}}", "x: weight_map is given twice"},
      {map_of("\"a\":1"), "x: weight_map gives tensor \"a\" to a number; it must be the name of a file"},
      {map_of("\"a\":-1"), "x: weight_map gives tensor \"a\" to a number"},
      {map_of("\"a\":0.5"), "x: weight_map gives tensor \"a\" to a number"},
      {map_of("\"a\":null"), "x: weight_map gives tensor \"a\" to null"},
      {map_of("\"a\":true"), "x: weight_map gives tensor \"a\" to true or false"},
      {map_of("\"a\":{}"), "x: weight_map gives tensor \"a\" to an object"},
      {map_of("\"a\":[]"), "x: weight_map gives tensor \"a\" to a list"},
      {map_of("\"a\":\"a.safetensors\",\"b\":\"a.safetensors\",\"a\":\"b.safetensors\""),
       "x: weight_map gives tensor \"a\" twice"},
      {map_of("\"a\":\"pytorch_model.bin\""),
       "x: weight_map gives tensor \"a\" to the file \"pytorch_model.bin\", which is not a .safetensors file"},
      {map_of("\"\\u001b\":\"a.safetensors\""), "x: tensor \"\\u001b\": a tensor's name must not hold control"},
      {map_of("\"../a\":\"a.safetensors\""), "x: tensor \"../a\": a tensor's name must not have a part \"..\""},
      {map_of("") + "x", "x: is not JSON, at byte 18: syntax error"},
      {map_of("") + std::string("\0x", 2), "x: a NUL at byte 17"},
      {"{\"weight_map\":{", "x: is not JSON"},
      {"{\"a\":" + std::string(32, '[') + std::string(32, ']') + "}", "x: is nested deeper than 32"},
  };
  for (const auto& [json, message] : all)
    EXPECT_THAT(message_of<CheckpointError>([&] { parse_safetensors_index(json, "x"); }), StartsWith(message)) << json;
  EXPECT_EQ(message_of<CheckpointError>([] {
              parse_safetensors_index("{\"a\":" + std::string(31, '[') + std::string(31, ']') + ",\"weight_map\":{}}",
                                      "x");
            }),
            "no error");
}

}  // namespace
}  // namespace trireme::files
