// Files crafted to exhaust memory or time: opening one must allocate at most its size + 16 MiB, and not take long.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "trireme/files/json_bounds.hpp"
#include "trireme/files/safetensors_header.hpp"
#include "trireme/files/safetensors_index.hpp"
#include "trireme/testing/files_helpers.hpp"

// Counts the bytes that this program has allocated, and the peak. Not inlined: gcc would see free() of memory from new,
// and warn.
namespace {
std::atomic<std::int64_t> held_bytes = 0, peak_bytes = 0;
void* counted(void* memory) {
  const std::int64_t now = held_bytes += static_cast<std::int64_t>(::malloc_usable_size(memory));
  if (now > peak_bytes) peak_bytes = now;
  return memory;
}
void uncounted(void* memory) {
  held_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}
}  // namespace
[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return counted(memory);
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  void* const memory = std::malloc(size == 0 ? 1 : size);
  return memory == nullptr ? nullptr : counted(memory);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { uncounted(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { uncounted(memory); }

namespace trireme::files {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMoreBytes = 16 << 20;
// Tests are compiled without optimisation, and so are the templates that they share with the library. Optimised timings
// are measured by tests/peers/safetensors_agrees.py.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kDeadline = 60;
#else
constexpr double kDeadline = 6;
#endif

struct Costs {
  std::int64_t bytes = 0;  // peak of allocated bytes, relative to the start
  double seconds = 0;      // CPU time: depends little on the load of the machine
};
Costs costs_of(const std::function<void()>& body) {
  const std::int64_t before = held_bytes;
  peak_bytes = before;
  const std::clock_t start = std::clock();
  body();
  return {peak_bytes - before, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC};
}

struct Hostile {
  const char* what;
  std::string message;  // "" if the file is accepted
  std::function<std::string()> header;
};

/// Repeats `unit` up to the JSON size limit. Units are joined first: this file is compiled without optimisation.
std::string filled(const std::string& head, const std::string& unit, const std::string& tail) {
  std::string units, out = head;
  while (units.size() < 100'000) units += unit;
  const std::size_t room = kMaxJsonBytes - head.size() - tail.size();
  while (out.size() + units.size() <= head.size() + room) out += units;
  return out + tail;
}
/// As many units as fit, or `count`; a # in the unit is replaced by its index.
std::string numbered(const std::string& head, const std::string& unit, const std::string& tail, std::size_t count) {
  const std::size_t hash = unit.find('#');
  const std::string left = "," + unit.substr(0, hash), right = unit.substr(hash + 1);
  std::string out = head;
  for (std::size_t i = 0; i < count && out.size() + unit.size() + tail.size() + 10 <= kMaxJsonBytes; ++i) {
    out += i == 0 ? left.substr(1) : left;
    out += std::to_string(i);
    out += right;
  }
  return out + tail;
}

const std::string kEmptyTensor = R"(:{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";

const std::vector<Hostile> kHostile = {
    {"more tensors than allowed", "x: more than 262144 tensors\n  fix: write them to several files",
     [] { return numbered("{", "\"#\"" + kEmptyTensor, "}", kMaxTensors + 1); }},
    {"as many tensors as allowed", "", [] { return numbered("{", "\"#\"" + kEmptyTensor, "}", kMaxTensors); }},
    {"a million tensors, or 56 MB of anything", "56000001 bytes of JSON; at most 33554432 are allowed",
     [] { return "{" + std::string(56'000'000, 'x'); }},
    {"64 sizes each", "",
     [] {
       std::string ones;
       for (int i = 1; i < 64; ++i) ones += ",1";
       return numbered("{", R"("#":{"dtype":"U8","shape":[0)" + ones + R"(],"data_offsets":[0,0]})", "}", 65'537);
     }},
    {"long names", "", [] { return numbered("{", "\"" + std::string(80, 'n') + "#\"" + kEmptyTensor, "}", 65'537); }},
    {"the longest names", "",
     [] { return numbered("{", "\"#" + std::string(4080, 'n') + "\"" + kEmptyTensor, "}", 2'000); }},
    {"tensors all given twice", "is given twice",
     [] {
       const std::string half = numbered("", "\"#\"" + kEmptyTensor, "", 33'000);
       return "{" + half + "," + half + "}";
     }},
    {"lists in lists", "are allowed between two texts", [] { return filled("{\"a\":", "[", ""); }},
    {"lists in lists, with texts", "must be an object, not a list", [] { return filled("{\"a\":", "[\"\",", ""); }},
    {"objects in objects", "unknown key", [] { return filled("{\"a\":", "{\"a\":", ""); }},
    {"spaces before the end", "are allowed between two texts", [] { return filled("{", " ", "}"); }},
    {"spaces after the end", "", [] { return "{}" + std::string(99'999'998, ' '); }},
    {"a long number", "are allowed between two texts",
     [] { return filled(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":[)", "1", "]}}"); }},
    {"a long list", "are allowed between two texts",
     [] { return filled(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":[0)", ",1", "]}}"); }},
    {"a long text", "a text of ", [] { return filled("{\"__metadata__\":{\"a\":\"", "x", "\"}}"); }},
    {"texts as long as allowed", "",
     [] { return numbered("{\"__metadata__\":{", "\"#\":\"" + std::string(1 << 20, 'x') + "\"", "}}", 5); }},
    {"a text as long as allowed, wrong at its end", "is not UTF-8",
     [] { return "{\"" + std::string((1 << 20) - 1, 'x') + "\xff\"}"; }},
    {"a gap as long as allowed, wrong at its end", "is not JSON", [] { return "{" + std::string(65'000, '\n') + "x"; }},
    {"many keys of metadata", "has more than 16384 keys",
     [] { return numbered("{\"__metadata__\":{", "\"#\":\"\"", "}}", 1'000'000); }},
    {"as many keys of metadata as allowed", "",
     [] { return numbered("{\"__metadata__\":{", "\"#" + std::string(300, 'k') + "\":\"\"", "}}", kMaxMetadataKeys); }},
    {"bytes that are not UTF-8", "is not UTF-8", [] { return "{\"" + std::string(1'000'000, '\xff'); }},
};

TEST(HostileSafetensors, NoneEatsMemoryOrTime) {
  for (const auto& [what, message, header] : kHostile) {
    const std::string json = header();
    std::string found;
    const Costs costs =
        costs_of([&] { found = message_of<CheckpointError>([&] { SafetensorsHeader read(json, 0, "x"); }); });
    const auto file_bytes = static_cast<std::int64_t>(json.size());
    EXPECT_THAT(found, HasSubstr(message.empty() ? "no error" : message)) << what;
    EXPECT_LT(found.size(), 1000U) << what;
    EXPECT_LE(costs.bytes, file_bytes + kMoreBytes) << what;
    EXPECT_LT(costs.seconds, kDeadline) << what;
  }
}

TEST(HostileSafetensors, NorDoesAnIndex) {
  const std::vector<Hostile> all = {
      {"more tensors than allowed", "more than 524288 tensors",
       [] { return numbered("{\"weight_map\":{", R"("#":"a.safetensors")", "}}", kMaxIndexTensors + 1); }},
      {"many files", "names more than 10000 files",
       [] { return numbered("{\"weight_map\":{", R"("a":"#.safetensors")", "}}", 10'001); }},
      {"lists in lists", "are allowed between two texts", [] { return filled("{\"metadata\":", "[", ""); }},
      {"lists in lists, with texts", "is nested deeper than 32", [] { return filled("{\"a\":", "[\"\",", ""); }},
      {"objects in objects", "is nested deeper than 32", [] { return filled("{\"a\":", "{\"a\":", ""); }},
      {"a long text", "a text of ", [] { return filled("{\"", "x", ""); }},
      {"long tensors", "a tensor's name has at most",
       [] { return filled("{\"weight_map\":{", "\"" + std::string(5'000, 'x') + "\":\"a.safetensors\",", "}}"); }},
  };
  for (const auto& [what, message, json] : all) {
    const std::string text_of_file = json();
    std::string found;
    const Costs costs =
        costs_of([&] { found = message_of<CheckpointError>([&] { parse_safetensors_index(text_of_file, "x"); }); });
    EXPECT_THAT(found, HasSubstr(message.empty() ? "no error" : message)) << what;
    EXPECT_LE(costs.bytes, static_cast<std::int64_t>(text_of_file.size()) + kMoreBytes) << what;
    EXPECT_LT(costs.seconds, kDeadline) << what;
  }
}

}  // namespace
}  // namespace trireme::files
