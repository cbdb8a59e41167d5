#include "trireme/config/schema/choices.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/testing/config_helpers.hpp"

namespace trireme::config {
namespace {

TEST(Choices, EveryWordOfAKeyIsParsed) {
  EXPECT_EQ(parse_non_finite("stop"), NonFinite::stop);
  EXPECT_EQ(parse_non_finite("skip"), NonFinite::skip);
  EXPECT_EQ(parse_comm_backend("auto"), CommBackend::automatic);
  EXPECT_EQ(parse_comm_backend("gloo"), CommBackend::gloo);
  EXPECT_EQ(parse_comm_backend("nccl"), CommBackend::nccl);
  EXPECT_EQ(parse_rope_kind(""), RopeKind::plain);
  EXPECT_EQ(parse_rope_kind("default"), RopeKind::plain);
  EXPECT_EQ(parse_rope_kind("linear"), RopeKind::linear);
  EXPECT_EQ(parse_rope_kind("dynamic"), RopeKind::dynamic);
  EXPECT_EQ(parse_rope_kind("yarn"), RopeKind::yarn);
  EXPECT_EQ(parse_rope_kind("llama3"), RopeKind::llama3);
  for (const std::string& word : rope_kind_words()) EXPECT_NO_THROW(parse_rope_kind(word)) << word;
  for (const std::string& word : non_finite_words()) EXPECT_NO_THROW(parse_non_finite(word)) << word;
  for (const std::string& word : comm_backend_words()) EXPECT_NO_THROW(parse_comm_backend(word)) << word;
}

TEST(Choices, AnotherWordIsAnErrorThatListsThem) {
  EXPECT_EQ(message_of<ConfigError>([] { parse_non_finite("Stop"); }),
            "checks.non_finite = \"Stop\" is not one of: stop, skip");
  EXPECT_EQ(message_of<ConfigError>([] { parse_comm_backend("mpi"); }),
            "comm.backend = \"mpi\" is not one of: auto, gloo, nccl");
  EXPECT_EQ(message_of<ConfigError>([] { parse_rope_kind("longrope"); }),
            "model.rope_scaling.rope_type = \"longrope\" is not one of: \"\", default, linear, dynamic, yarn, llama3");
}

TEST(Choices, AUnitIsAWordOrANumberOfLayers) {
  EXPECT_EQ(parse_zero_unit("layer"), (ZeroUnit{ZeroUnit::Kind::layers, 1}));
  EXPECT_EQ(parse_zero_unit("12"), (ZeroUnit{ZeroUnit::Kind::layers, 12}));
  EXPECT_EQ(parse_zero_unit("model"), (ZeroUnit{ZeroUnit::Kind::model, 0}));
  for (const char* word : {"", "0", "-1", "+1", "two", "3x", "1.0", "1000000", "99999999999999999999"})
    EXPECT_EQ(parse_zero_unit(word), std::nullopt) << word;
}

}  // namespace
}  // namespace trireme::config
