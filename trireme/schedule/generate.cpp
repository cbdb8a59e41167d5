#include "trireme/schedule/generate.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

/// Builds a rank's program. Actions of one kind and chunk run in microbatch order, so calls name only kind and chunk.
class Writer {
 public:
  explicit Writer(std::vector<int> chunks) : chunks_(std::move(chunks)), next_(chunks_.size()) {}

  int done(ActionKind op, std::size_t local) const { return next_[local][index(op)]; }

  void add(ActionKind op, std::size_t local = 0) {
    int& microbatch = next_[local][index(op)];
    program_.push_back({op, chunks_[local], microbatch});
    ++microbatch;
    if (op == ActionKind::B)
      next_[local][index(ActionKind::W)] = microbatch;  // I and B share a counter; B also does the work of W
    if (op == ActionKind::I) pending_.push_back(local);
  }
  void forward(std::size_t local = 0) { add(ActionKind::F, local); }
  void backward(std::size_t local = 0) { add(ActionKind::B, local); }
  void input(std::size_t local = 0) { add(ActionKind::I, local); }
  void weight(std::size_t local = 0) { add(ActionKind::W, local); }
  /// The weight gradient that was deferred the longest, of any chunk.
  void oldest_weight() {
    weight(pending_.front());
    pending_.pop_front();
  }
  bool has_pending() const { return !pending_.empty(); }

  /// The program truncated to the first `microbatches`.
  ///
  /// Note [Phantom microbatches]: some schedules are only defined for a minimum number of microbatches. They are
  /// generated for that number, and the actions of microbatches that do not exist are dropped. The order of the rest
  /// does not change, and an action never waits for another microbatch, so this cannot introduce a deadlock.
  Program take(int microbatches) && {
    std::erase_if(program_, [&](const Action& step) { return step.microbatch >= microbatches; });
    return std::move(program_);
  }

 private:
  static std::size_t index(ActionKind op) { return op == ActionKind::F ? 0 : op == ActionKind::W ? 2 : 1; }

  std::vector<int> chunks_;
  std::vector<std::array<int, 3>> next_;  // by local chunk: number of F, I or B, W so far
  std::deque<std::size_t> pending_;       // local chunks with a deferred W
  Program program_;
};

Writer v_shape(int rank, int ranks) { return Writer({rank, 2 * ranks - 1 - rank}); }

void repeat(int times, const std::function<void()>& body) {
  for (int i = 0; i < times; ++i) body();
}

struct Known {
  ScheduleKind kind;
  const char* name;
  const char* alias;
  int fixed_chunks;  // per rank; 0 = from the config
  std::function<Program(int rank, int ranks, int microbatches, int virtual_stages)> program;
};

const std::vector<Known>& known_schedules() {
  const auto flat = [](Program (*make)(int, int, int)) {
    return [make](int r, int p, int m, int) { return make(r, p, m); };
  };
  static const std::vector<Known> known = {
      {ScheduleKind::all_forward_all_backward, "afab", "gpipe", 1, flat(all_forward_all_backward)},
      {ScheduleKind::one_f_one_b, "1f1b", "", 1, flat(one_f_one_b)},
      {ScheduleKind::interleaved, "interleaved-1f1b", "", 0, interleaved},
      {ScheduleKind::zb1p, "zb1p", "zero-bubble", 1, flat(zb1p)},
      {ScheduleKind::zbv, "zbv", "", 2, flat(zbv)},
      {ScheduleKind::dualpipe_v, "dualpipe-v", "", 2, flat(dualpipe_v)},
  };
  return known;
}

const Known* find_schedule(std::string_view name) {
  const auto& known = known_schedules();
  const auto it =
      std::ranges::find_if(known, [&](const Known& k) { return name == k.name || (name == k.alias && *k.alias); });
  return it == known.end() ? nullptr : &*it;
}

const Known& known_schedule(ScheduleKind kind) {
  return *std::ranges::find(known_schedules(), kind, &Known::kind);  // the table has every kind
}

}  // namespace

Program all_forward_all_backward(int rank, int /*ranks*/, int microbatches) {
  Writer w({rank});
  repeat(microbatches, [&] { w.forward(); });
  repeat(microbatches, [&] { w.backward(); });
  return std::move(w).take(microbatches);
}

Program one_f_one_b(int rank, int ranks, int microbatches) {
  const int warmup = std::min(ranks - 1 - rank, microbatches);
  Writer w({rank});
  repeat(warmup, [&] { w.forward(); });
  repeat(microbatches - warmup, [&] { w.forward(), w.backward(); });
  repeat(warmup, [&] { w.backward(); });
  return std::move(w).take(microbatches);
}

Program interleaved(int rank, int ranks, int microbatches, int virtual_stages) {
  if (virtual_stages == 1) return one_f_one_b(rank, ranks, microbatches);
  // Microbatches are processed in rounds of `ranks`: a round passes the first chunk, then the second, ... (Note
  // [Phantom microbatches] covers an incomplete last round).
  const int rounds = (microbatches + ranks - 1) / ranks;
  const int total = rounds * ranks * virtual_stages;
  std::vector<int> chunks;
  for (int v = 0; v < virtual_stages; ++v) chunks.push_back(v * ranks + rank);
  const auto local = [&](int k) { return static_cast<std::size_t>(k / ranks % virtual_stages); };

  const int warmup = std::min(2 * (ranks - 1 - rank) + (virtual_stages - 1) * ranks, total);
  Writer w(chunks);
  int f = 0, b = 0;
  const auto forward = [&] { w.forward(local(f++)); };
  const auto backward = [&] { w.backward(chunks.size() - 1 - local(b++)); };
  repeat(warmup, forward);
  repeat(total - warmup, [&] { forward(), backward(); });
  repeat(warmup, backward);
  return std::move(w).take(microbatches);
}

Program zb1p(int rank, int ranks, int microbatches) {
  const int warmup = std::min(ranks - 1 - rank, microbatches);
  Writer w({rank});
  repeat(warmup, [&] { w.forward(); });
  repeat(microbatches - warmup, [&] {
    w.forward();
    w.input();
    if (w.done(ActionKind::I, 0) - w.done(ActionKind::W, 0) > rank) w.weight();
  });
  repeat(warmup, [&] { w.input(), w.weight(); });
  while (w.done(ActionKind::W, 0) < microbatches) w.weight();
  return std::move(w).take(microbatches);
}

Program zbv(int rank, int ranks, int microbatches) {
  const int written = std::max(microbatches, 2 * ranks - 1);
  Writer w = v_shape(rank, ranks);
  // Warm-up: down the V, then both sides, then the first gradients come back up its second side.
  repeat(2 * (ranks - rank) - 1, [&] { w.forward(0); });
  repeat(rank, [&] { w.forward(1), w.forward(0); });
  repeat(ranks - rank, [&] { w.forward(1), w.input(1), w.weight(1); });
  // Steady: six actions, one microbatch of each chunk.
  while (w.done(ActionKind::F, 1) < written) {
    if (w.done(ActionKind::F, 0) < written) w.forward(0);
    w.input(0), w.weight(0), w.forward(1), w.input(1), w.weight(1);
  }
  // Cool-down: input gradients first if a rank below waits for them; deferred weight gradients fill the end.
  repeat(rank, [&] { w.input(0), w.input(1); });
  repeat(ranks - rank, [&] { w.input(0), w.weight(0); });
  for (const std::size_t local : {std::size_t{1}, std::size_t{0}})
    while (w.done(ActionKind::W, local) < written) w.weight(local);
  return std::move(w).take(microbatches);
}

Program dualpipe_v(int rank, int ranks, int microbatches) {
  const int written = std::max(microbatches, 2 * ranks);
  const int behind = ranks - 1 - rank;  // ranks closer to the bottom of the V
  Writer w = v_shape(rank, ranks);
  // Warm-up.
  repeat(2 * behind, [&] { w.forward(0); });
  repeat(rank + 1, [&] { w.forward(0), w.forward(1); });
  repeat(behind, [&] { w.input(1), w.oldest_weight(), w.forward(1); });
  // Steady: a forward of one chunk paired with a backward of the other, twice per microbatch.
  repeat(written - 2 * ranks + rank + 1, [&] { w.forward(0), w.backward(1), w.forward(1), w.backward(0); });
  repeat(behind, [&] { w.backward(1), w.forward(1), w.backward(0); });
  // Cool-down: the second half of these computes only the input gradients, and the weight gradients fill what follows.
  const int drain = 2 * (rank + 1);
  for (int i = 0; i < drain; ++i) w.add(i < rank + 1 ? ActionKind::B : ActionKind::I, i % 2 == 0 ? 1 : 0);
  repeat(behind, [&] { w.oldest_weight(), w.input(0); });
  while (w.has_pending()) w.oldest_weight();
  return std::move(w).take(microbatches);
}

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Known& k : known_schedules()) all.emplace_back(k.name);
    return all;
  }();
  return names;
}

std::string canonical_schedule(std::string_view name) {
  const Known* known = find_schedule(name);
  return known ? known->name : "";
}

ScheduleKind parse_schedule_kind(std::string_view name) {
  if (const Known* known = find_schedule(name)) return known->kind;
  std::string names;
  for (const std::string& n : schedule_names()) names += " " + n;
  throw ConfigError(text("unknown schedule '", name, "'\n  fix: one of", names));
}

int chunks_per_rank(ScheduleKind kind, int virtual_stages) {
  const int fixed = known_schedule(kind).fixed_chunks;
  return fixed ? fixed : virtual_stages;
}

Schedule make_schedule(std::string_view name, int ranks, int microbatches, int virtual_stages) {
  return make_schedule(parse_schedule_kind(name), ranks, microbatches, virtual_stages);
}

Schedule make_schedule(ScheduleKind kind, int ranks, int microbatches, int virtual_stages) {
  const Known& known = known_schedule(kind);
  const char* name = known.name;
  require<ConfigError>(ranks >= 1, "schedule ", name, ": stages = ", ranks, ": must be at least 1");
  require<ConfigError>(microbatches >= 1, "schedule ", name, ": microbatches = ", microbatches, ": must be at least 1");
  require<ConfigError>(virtual_stages >= 1, "schedule ", name, ": virtual_stages = ", virtual_stages,
                       ": must be at least 1");

  const int per_rank = chunks_per_rank(kind, virtual_stages);
  Schedule schedule{.name = name,
                    .microbatches = microbatches,
                    .rank_of_chunk = std::vector<int>(static_cast<std::size_t>(ranks * per_rank)),
                    .edges = chain(ranks * per_rank),
                    .programs = {}};
  for (int r = 0; r < ranks; ++r) {
    schedule.programs.push_back(known.program(r, ranks, microbatches, virtual_stages));
    for (const Action& step : schedule.programs.back())
      schedule.rank_of_chunk[static_cast<std::size_t>(step.chunk)] = r;
  }
  return schedule;
}

}  // namespace trireme::schedule
