#include "trireme/comm/store/signed_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "trireme/base/error.hpp"
#include "trireme/testing/test_helpers.hpp"

namespace trireme {
namespace {

struct SharedStore {
  c10::intrusive_ptr<c10d::Store> open = c10::make_intrusive<c10d::HashStore>();
  c10::intrusive_ptr<c10d::Store> ours = c10::make_intrusive<SignedStore>(open, "a secret");
};

TEST(SignedStore, ValuesArriveAsTheyWereWritten) {
  SharedStore store;
  for (const std::string value : {"", "x", "a longer value"}) {
    store.ours->set("key", value);
    EXPECT_EQ(store.ours->get_to_str("key"), value);
  }
  EXPECT_EQ(store.ours->add("count", 3), 3);
  EXPECT_EQ(store.ours->add("count", 4), 7);
  EXPECT_EQ(store.ours->compareSet("turn", "", "first"), "first");
  EXPECT_EQ(store.ours->compareSet("turn", "other", "second"), "first");
  EXPECT_EQ(store.ours->compareSet("turn", "first", "second"), "second");
  EXPECT_EQ(store.ours->get_to_str("turn"), "second");
  EXPECT_TRUE(store.ours->check({"key"}));
  EXPECT_TRUE(store.ours->deleteKey("key"));
  EXPECT_FALSE(store.ours->check({"key"}));
  const c10::intrusive_ptr<c10d::Store> with_prefix = c10::make_intrusive<c10d::PrefixStore>("job/0", store.ours);
  with_prefix->set("key", "value");
  EXPECT_EQ(with_prefix->get_to_str("key"), "value");
  EXPECT_EQ(store.ours->get_to_str("job/0/key"), "value");
}

TEST(SignedStore, ValuesOfOthersAreRefused) {
  SharedStore store;
  const auto refusal = [&](const std::string& key) { return message_of<SecurityError>([&] { store.ours->get(key); }); };
  const auto names_it = testing::StartsWith("the value of \"key\" in the store was written without the secret");
  store.open->set("key", "forged");
  EXPECT_THAT(refusal("key"), names_it);
  store.open->set("key", std::string(100, 'x'));
  EXPECT_THAT(refusal("key"), names_it);
  const c10::intrusive_ptr<c10d::Store> theirs = c10::make_intrusive<SignedStore>(store.open, "another secret");
  theirs->set("key", "value");
  EXPECT_THAT(refusal("key"), names_it);
  store.ours->set("other", "value");
  store.open->set("key", store.open->get("other"));  // a true value of another key
  EXPECT_THAT(refusal("key"), names_it);
  store.ours->set("key", "value");
  std::vector<std::uint8_t> bytes = store.open->get("key");
  bytes[0] ^= 1;
  store.open->set("key", bytes);
  EXPECT_THAT(refusal("key"), names_it);
}

}  // namespace
}  // namespace trireme
