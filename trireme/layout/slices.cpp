#include "trireme/layout/slices.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::array kReduceOps{ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::min};

/// A left-to-right parser; every error names the text, the position and the rule.
class Reader {
 public:
  Reader(const char* what, std::string_view source) : what_(what), source_(source) {}

  bool done() const { return at_ == source_.size(); }
  bool next_is(char c) const { return !done() && source_[at_] == c; }
  bool accept(std::string_view word) {
    const bool found = source_.substr(at_).starts_with(word);
    if (found) at_ += word.size();
    return found;
  }
  void expect(std::string_view word) {
    if (!accept(word)) fail("expected \"", word, "\"");
  }
  void expect_end() const {
    if (!done()) fail("expected the end");
  }
  std::int64_t number() {
    std::int64_t value = 0;
    const char* const begin = source_.data() + at_;
    const auto [end, error] = std::from_chars(begin, source_.data() + source_.size(), value);
    if (error == std::errc::result_out_of_range) fail("the number does not fit in 64 bits");
    if (error != std::errc()) fail("expected a whole number");
    at_ += static_cast<std::size_t>(end - begin);
    return value;
  }
  std::optional<std::int64_t> number_or_none() {
    if (accept("None")) return std::nullopt;
    return number();
  }
  std::string_view until(char c) {
    const std::size_t length = source_.substr(at_).find(c);
    if (length == std::string_view::npos) fail("expected a \"", c, "\"");
    at_ += length;
    return source_.substr(at_ - length, length);
  }
  std::string_view rest() {
    const std::string_view word = source_.substr(at_);
    at_ = source_.size();
    return word;
  }

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... rule) const {
    constexpr std::size_t kShown = 40;  // characters on either side: the text may be megabytes long
    const std::size_t begin = at_ - std::min(at_, kShown);
    std::string shown(source_.substr(begin, at_ - begin + kShown));
    for (char& c : shown)
      if (c < ' ' || c > '~') c = '?';  // no control characters in a terminal
    throw CheckpointError(text(what_, " \"", begin > 0 ? "..." : "", shown, source_.size() > at_ + kShown ? "..." : "",
                               "\": at position ", at_, ": ", rule...));
  }

 private:
  const char* what_;
  std::string_view source_;
  std::size_t at_ = 0;
};

Slices read_slices(Reader& reader) {
  Slices slices;
  if (reader.done() || reader.next_is('#') || reader.next_is(';')) return slices;
  do {
    if (slices.size() == kMaxDims) reader.fail("a tensor has at most ", kMaxDims, " dims");
    Slice& slice = slices.emplace_back();
    slice.start = reader.number_or_none();
    reader.expect(",");
    slice.stop = reader.number_or_none();
    reader.expect(",");
    slice.step = reader.number_or_none();
  } while (reader.accept("|"));
  return slices;
}

Shape read_tuple(Reader& reader) {
  Shape numbers;
  reader.expect("(");
  while (!reader.accept(")")) {
    if (numbers.size() == kMaxPairs) reader.fail("a tuple has at most ", kMaxPairs, " numbers");
    if (!numbers.empty() && !reader.accept(" ")) reader.fail("expected \", \" between two numbers");
    const bool numpy = reader.accept("np.int64(");
    if (reader.next_is('-')) reader.fail("must not be negative");
    numbers.push_back(reader.number());
    if (numpy) reader.expect(")");
    // Python writes "(32,)" but "(32, 16)".
    if (numbers.size() == 1 || !reader.next_is(')')) reader.expect(",");
  }
  return numbers;
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t dim = 0; dim < a.size(); ++dim)
    if (std::max(a[dim].begin, b[dim].begin) >= std::min(a[dim].end, b[dim].end)) return false;
  return true;
}

template <class Parts>
std::string joined(const Parts& parts, const char* separator) {
  std::string result;
  for (bool first = true; const auto& part : parts) {
    if (!first) result += separator;
    result += str(part);
    first = false;
  }
  return result;
}

std::string or_none(std::optional<std::int64_t> number) { return number ? std::to_string(*number) : "None"; }

}  // namespace

const char* name(ReduceOp op) {
  constexpr std::array<const char*, kReduceOps.size()> kNames{"sum", "avg", "max", "min"};
  return kNames[static_cast<std::size_t>(op)];
}

// Here and below `throw`, not `require`: it would format the slices even on success, and this runs for every piece.
std::int64_t numel(const Shape& shape) {
  constexpr std::int64_t kMax = std::int64_t{1} << 60;
  std::int64_t count = 1, bound = 1;  // the bound ignores dims of size 0, so that every single size is checked
  for (std::int64_t size : shape) {
    if (size < 0) throw ConfigError(text("shape ", tuple_text(shape), ": a size is negative"));
    if (size > 0 && bound > kMax / size)
      throw ConfigError(text("shape ", tuple_text(shape), ": more than 2^60 elements"));
    count *= size;
    bound *= std::max<std::int64_t>(size, 1);
  }
  return count;
}

Range resolve(const Slice& slice, std::int64_t size) {
  if (slice.step.value_or(1) != 1) throw CheckpointError(text("slice ", str(slice), ": the step must be None or 1"));
  const auto inside = [&](std::optional<std::int64_t> index, std::int64_t otherwise) {
    if (!index) return otherwise;
    if (*index < -size || *index > size)
      throw CheckpointError(text("slice ", str(slice), ": ", *index, " is outside a dim of size ", size));
    return *index < 0 ? *index + size : *index;
  };
  const std::int64_t begin = inside(slice.start, 0);
  return {begin, std::max(begin, inside(slice.stop, size))};
}

Box resolve(const Slices& slices, const Shape& shape) {
  if (slices.size() != shape.size())
    throw CheckpointError(
        text("slices ", str(slices), ": ", slices.size(), " dims for a tensor of shape ", tuple_text(shape)));
  Box box;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) box.push_back(resolve(slices[dim], shape[dim]));
  return box;
}

Slices slices_of(const Box& box) {
  Slices slices;
  for (auto [begin, end] : box) slices.push_back({.start = begin, .stop = end, .step = {}});
  return slices;
}

Box box_of(const Slices& slices) {
  Box box;
  box.reserve(slices.size());
  for (const Slice& slice : slices) {
    const std::int64_t begin = slice.start.value_or(-1), end = slice.stop.value_or(-1);
    if (begin < 0 || end < begin || slice.step.value_or(1) != 1)
      throw InternalError(text("slice ", str(slice), ": start and stop are not spelt out; resolve it first"));
    box.push_back({begin, end});
  }
  return box;
}

ShardedInfo validated(const ShardedInfo& info, const Shape& local_shape) {
  const std::vector<SlicesPair>& pairs = info.local_global_slices_pairs;
  ShardedInfo result{info.global_ranks, {}, info.unsharded_shape};
  std::vector<Box> locals, globals;
  for (const SlicesPair& pair : pairs) {
    const auto fail = [&](const auto&... why) { throw CheckpointError(text("slices ", str(pair), ": ", why...)); };
    const Box local = resolve(pair.local_slices, local_shape),
              global = resolve(pair.global_slices, info.unsharded_shape);
    if (local.size() != global.size()) fail(local.size(), " local and ", global.size(), " global dims");
    for (std::size_t dim = 0; dim < local.size(); ++dim)
      if (local[dim].size() != global[dim].size())
        fail("dim ", dim, " has ", local[dim].size(), " local and ", global[dim].size(), " global elements");
    for (std::size_t other = 0; other < locals.size(); ++other)
      if (overlap(local, locals[other]) || overlap(global, globals[other])) fail("overlaps ", str(pairs[other]));
    result.local_global_slices_pairs.push_back({slices_of(local), slices_of(global)});
    locals.push_back(local);
    globals.push_back(global);
  }
  return result;
}

std::string str(const Slice& slice) {
  return or_none(slice.start) + "," + or_none(slice.stop) + "," + or_none(slice.step);
}
std::string str(const Slices& slices) { return joined(slices, "|"); }
std::string str(const SlicesPair& pair) { return str(pair.local_slices) + "#" + str(pair.global_slices); }
std::string str(const std::vector<SlicesPair>& pairs) { return joined(pairs, ";"); }

std::string str(const Box& box) {
  std::string result;
  for (auto [begin, end] : box) result += text(result.empty() ? "" : ", ", begin, ":", end);
  return "[" + result + "]";
}

std::string tuple_text(const Shape& numbers) {
  std::string result;
  for (std::int64_t number : numbers) result += text(result.empty() ? "" : ", ", number);
  return "(" + result + (numbers.size() == 1 ? ",)" : ")");
}

std::vector<SlicesPair> parse_slices_pairs(std::string_view source) {
  Reader reader("local_global_slices_pairs", source);
  std::vector<SlicesPair> pairs;
  if (reader.done()) return pairs;
  do {
    if (pairs.size() == kMaxPairs) reader.fail("a tensor has at most ", kMaxPairs, " pairs of slices");
    SlicesPair& pair = pairs.emplace_back();
    pair.local_slices = read_slices(reader);
    reader.expect("#");
    pair.global_slices = read_slices(reader);
  } while (reader.accept(";"));
  reader.expect_end();
  return pairs;
}

Shape parse_tuple(std::string_view source) {
  Reader reader("tuple", source);
  Shape numbers = read_tuple(reader);
  reader.expect_end();
  return numbers;
}

std::string str(const TiedInfo& info) {
  require<ConfigError>(info.root_module.find('#') == std::string::npos, "tied parameter ", info.name,
                       ": its root module \"", info.root_module, "\" contains a #");
  return text(info.reduce_op ? name(*info.reduce_op) : "None", "#",
              tuple_text(Shape(info.global_ranks.begin(), info.global_ranks.end())), "#", info.root_module, "#",
              info.name);
}

TiedInfo parse_tied_info(std::string_view source) {
  Reader reader("tied parameter", source);
  TiedInfo info;
  if (!reader.accept("None")) {
    const auto op =
        std::ranges::find_if(kReduceOps, [&](ReduceOp candidate) { return reader.accept(name(candidate)); });
    if (op == kReduceOps.end()) reader.fail("expected None, sum, avg, max or min");
    info.reduce_op = *op;
  }
  reader.expect("#");
  for (std::int64_t rank : read_tuple(reader)) {
    if (rank > std::numeric_limits<int>::max()) reader.fail("rank ", rank, " is too large");
    info.global_ranks.push_back(static_cast<int>(rank));
  }
  reader.expect("#");
  info.root_module = reader.until('#');
  reader.expect("#");
  info.name = reader.rest();
  return info;
}

}  // namespace trireme
