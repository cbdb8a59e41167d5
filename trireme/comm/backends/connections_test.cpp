// Large Gloo groups: connections between the pairs that talk, and sums in rounds (Note [Connections] in
// gloo_group.cpp).
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/comm/mesh.hpp"
#include "trireme/testing/counting_store.hpp"
#include "trireme/testing/gloo_threads.hpp"
#include "trireme/testing/temp_folder.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;

constexpr CommOptions kLazy{.full_mesh_ranks = 1};

TEST(Connections, SumsInRoundsAreThoseOfTheRing) {
  for (int ranks = 2; ranks <= 9; ++ranks)
    run_gloo_threads(
        ranks,
        [&](World& world) {
          for (int turn = 0; turn < 3; ++turn) {
            // Wraps around, as checksums do.
            const std::int64_t each = (std::int64_t{1} << 62) + 1000 * world.rank() + turn;
            std::uint64_t expected = 0;
            for (int r = 0; r < ranks; ++r)
              expected += (std::uint64_t{1} << 62) + static_cast<std::uint64_t>(1000 * r + turn);
            const at::Tensor sum = world.control().all_reduce_(at::full({1}, each, at::kLong)).wait();
            EXPECT_EQ(sum.item<std::int64_t>(), static_cast<std::int64_t>(expected)) << ranks << " ranks";
          }
        },
        kLazy);
}

/// The reads of all ranks from the store, to make the group of the step check and to check two steps.
std::int64_t keys_read(int ranks, int full_mesh_ranks) {
  const auto store = c10::make_intrusive<CountingStore>();
  run_gloo_threads(
      ranks,
      [&](World& world) {
        for (int step = 0; step < 2; ++step) world.end_step({});
      },
      {.full_mesh_ranks = full_mesh_ranks}, store);
  return store->keys_read();
}

TEST(Connections, OfALargeWorldDoNotGrowWithItsSquare) {
  constexpr int kRanks = 32;
  const std::int64_t full = keys_read(kRanks, kRanks), lazy = keys_read(kRanks, 4);
  EXPECT_GE(full, kRanks * (kRanks - 1));
  EXPECT_LE(lazy, kRanks * 5) << "log2(32) peers each; with a full mesh " << full;
}

TEST(Connections, AMismatchInALargeWorldIsNamed) {
  std::atomic<int> named = 0;
  std::array<std::string, 5> told;
  try {
    run_gloo_threads(
        5,
        [&](World& world) {
          Mesh mesh(Grid::dense({.dp = 5}), world);
          const auto rank = static_cast<std::size_t>(world.rank());
          try {
            // Gloo does not notice: the same bytes.
            mesh.world_group().all_reduce(at::ones({4}), rank == 3 ? Reduce::max : Reduce::sum).wait();
            mesh.end_step();
          } catch (const CommError& e) {
            told[rank] = e.what();
            if (told[rank].find("did not make the same call") != std::string::npos) ++named;
            throw;
          }
        },
        kLazy);
  } catch (const CommError&) {
  }
  EXPECT_GE(named, 1);
  for (const std::string& words : told) EXPECT_NE(words, "") << "a rank ended its step";
}

TEST(Connections, ARankThatDoesNotCheckItsStepIsNamed) {
  const TempFolder folder;
  std::array<std::string, 5> told;
  CommOptions options = kLazy;
  options.timeout_s = 1;
  options.hang_folder = (folder.path() / "hang").string();
  try {
    run_gloo_threads(
        5,
        [&](World& world) {
          Mesh mesh(Grid::dense({.dp = 5}), world);
          mesh.end_step();
          if (world.rank() == 3) {
            std::this_thread::sleep_for(std::chrono::seconds(4));  // alive, but busy elsewhere
            return;
          }
          try {
            mesh.end_step();
          } catch (const CommError& e) {
            told[static_cast<std::size_t>(world.rank())] = e.what();
            throw;
          }
        },
        options);
  } catch (const CommError&) {
  }
  EXPECT_TRUE(std::ranges::any_of(told,
                                  [](const std::string& words) {
                                    return words.find("missing: rank 3 (") != std::string::npos &&
                                           words.find("all_reduce") != std::string::npos;
                                  }))
      << told[0] << told[1];
}

}  // namespace
}  // namespace trireme
