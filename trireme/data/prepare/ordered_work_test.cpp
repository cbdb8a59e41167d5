#include "trireme/data/prepare/ordered_work.hpp"

#include <atomic>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::data {
namespace {

using std::chrono::microseconds;

struct Number {
  int value = 0, square = 0;
};

/// The numbers 0 ... n - 1, squared by workers with varying delays.
WorkStages<Number> squares(int n, std::vector<int>& out) {
  WorkStages<Number> steps;
  steps.read = [n, i = 0](Number& item) mutable {
    item.value = i++;
    return item.value < n;
  };
  steps.work = [](Number& item, int) {
    std::this_thread::sleep_for(microseconds(item.value % 7 * 30));
    item.square = item.value * item.value;
  };
  steps.write = [&out](Number& item) { out.push_back(item.square); };
  return steps;
}

TEST(OrderedWork, WritesInTheOrderOfReading) {
  for (const int workers : {1, 2, 3, 8}) {
    std::vector<int> out;
    ordered_work(workers, squares(300, out));
    ASSERT_EQ(out.size(), 300U);
    for (int i = 0; i < 300; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], i * i);
  }
  std::vector<int> out;
  ordered_work(2, squares(0, out));
  EXPECT_TRUE(out.empty());
}

TEST(OrderedWork, TheReaderIsNeverFarAhead) {
  std::vector<int> out;
  auto steps = squares(500, out);
  std::atomic<int> read = 0, most = 0;
  steps.read = [inner = steps.read, &read](Number& item) mutable {
    ++read;
    return inner(item);
  };
  steps.write = [&, written = 0](Number&) mutable { most = std::max(most.load(), read - written++); };
  ordered_work(3, steps);
  EXPECT_LE(most, 2 * 3 + 2);
}

TEST(OrderedWork, LargeItemsWaitForEachOther) {
  std::vector<int> out;
  auto steps = squares(50, out);
  std::atomic<int> read = 0, most = 0;
  steps.bytes = [](const Number&) { return std::size_t{1} << 30; };
  steps.read = [inner = steps.read, &read](Number& item) mutable {
    ++read;
    return inner(item);
  };
  steps.write = [&, written = 0](Number&) mutable { most = std::max(most.load(), read - written++); };
  ordered_work(3, steps);
  EXPECT_EQ(most, 1);
}

std::string failure(int workers, const WorkStages<Number>& steps) {
  try {
    ordered_work(workers, steps);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "none";
}

TEST(OrderedWork, OfSeveralFailuresTheFirstInOrderIsTold) {
  for (int round = 0; round < 20; ++round) {
    std::vector<int> out;
    auto steps = squares(100, out);
    steps.work = [](Number& item, int) {
      std::this_thread::sleep_for(microseconds(item.value == 40 ? 2'000 : 10));
      if (item.value >= 40) throw DataError(text("item ", item.value));
    };
    steps.read = [inner = steps.read](Number& item) mutable {
      if (item.value == 70) throw DataError("the reader");
      return inner(item);
    };
    EXPECT_EQ(failure(4, steps), "item 40");
    EXPECT_EQ(out.size(), 40U);
  }
}

TEST(OrderedWork, FailuresOfReaderAndWriterEndAll) {
  std::vector<int> out;
  auto steps = squares(100, out);
  steps.read = [i = 0](Number& item) mutable {
    item.value = i++;
    if (i == 11) throw DataError("the reader");
    return true;
  };
  EXPECT_EQ(failure(2, steps), "the reader");
  EXPECT_EQ(out.size(), 10U);
  steps = squares(100, out);
  steps.write = [](Number& item) {
    if (item.value == 5) throw DataError("the writer");
  };
  EXPECT_EQ(failure(2, steps), "the writer");
}

TEST(OrderedWork, StopsWhenAsked) {
  std::vector<int> out;
  auto steps = squares(1'000'000, out);
  steps.stopped = [&] { return out.size() >= 20; };
  EXPECT_THROW(ordered_work(2, steps), Interrupted);
  EXPECT_EQ(out.size(), 20U);
}

}  // namespace
}  // namespace trireme::data
