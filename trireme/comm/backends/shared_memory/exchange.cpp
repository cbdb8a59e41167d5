#include "trireme/comm/backends/shared_memory/exchange.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include "trireme/base/copy_bytes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/rank_order.hpp"

namespace trireme {
namespace {

/// From here on an all_reduce between more than two ranks takes two phases.
constexpr std::size_t kTwoPhases = std::size_t{32} << 10;

std::span<std::byte> bytes_of(const at::Tensor& x) {
  if (!x.defined() || x.numel() == 0) return {};
  return {static_cast<std::byte*>(x.data_ptr()), x.nbytes()};
}

std::size_t row_bytes(const at::Tensor& x) {
  std::size_t bytes = x.element_size();
  for (std::int64_t d = 1; d < x.dim(); ++d) bytes *= static_cast<std::size_t>(x.size(d));
  return bytes;
}

/// `whole` in n equal parts.
std::vector<std::span<std::byte>> even_parts(std::span<std::byte> whole, int n) {
  const std::size_t each = whole.size() / static_cast<std::size_t>(n);
  std::vector<std::span<std::byte>> parts;
  for (int r = 0; r < n; ++r) parts.push_back(whole.subspan(static_cast<std::size_t>(r) * each, each));
  return parts;
}

/// The same of any number of elements: some parts have one more.
std::vector<std::span<std::byte>> nearly_even_parts(std::span<std::byte> whole, std::size_t element, int n) {
  const std::size_t elements = whole.size() / element, parts = static_cast<std::size_t>(n);
  std::vector<std::span<std::byte>> out;
  for (std::size_t r = 0; r < parts; ++r) {
    const std::size_t begin = elements * r / parts, end = elements * (r + 1) / parts;
    out.push_back(whole.subspan(begin * element, (end - begin) * element));
  }
  return out;
}

at::Tensor view_of(const std::byte* data, std::size_t bytes, at::ScalarType dtype) {
  const auto elements = static_cast<std::int64_t>(bytes / c10::elementSize(dtype));
  return at::from_blob(const_cast<std::byte*>(data), {elements}, at::TensorOptions(dtype));
}

}  // namespace

Exchange::Exchange(GroupMemory& memory, Call call, const CallRecord& record, Ring ring, Compare compare)
    : memory_(memory),
      call_(std::move(call)),
      ring_(std::move(ring)),
      compare_(std::move(compare)),
      me_(memory.rank()),
      ranks_(memory.ranks()),
      counts_(call_.send_counts),
      has_header_(static_cast<std::size_t>(ranks_)) {
  header_.record = record;
  header_.counts = counts_.size();
  has_header_[static_cast<std::size_t>(me_)] = true;
  headers_ = 1;
  phases_.emplace_back();
  phases_.front().takings.resize(static_cast<std::size_t>(ranks_));
  Phase& first = phases_.front();
  first.writes.push_back(bytes_of(header_));
  if (!counts_.empty()) {
    const auto counts = std::as_bytes(std::span(counts_));
    first.writes.push_back(counts);
    first.writes.push_back(std::span(kPadding).first(padding_of(counts.size())));
  }
  for (const auto& span : first.writes) first.head += span.size();
  plan();
  for (Phase& phase : phases_) finish_phase(phase);
}

void Exchange::plan() {
  Phase& phase = phases_.front();
  const std::span<std::byte> in = bytes_of(call_.input), out = bytes_of(call_.output);
  const auto mine = static_cast<std::size_t>(me_), root = static_cast<std::size_t>(std::max(call_.peer, 0));
  const bool is_root = call_.peer == me_;
  switch (call_.op) {
    case Op::all_reduce: return plan_all_reduce();
    case Op::reduce_scatter: {
      const auto parts = even_parts(in, ranks_);
      plan_parts(phase, parts);
      phase.sum = Sum{.mine = parts[mine], .to = out.data()};
      return;
    }
    case Op::all_gather: {
      const auto parts = even_parts(out, ranks_);
      if (parts[mine].data() != in.data()) copy_bytes(parts[mine].data(), in.data(), in.size());
      phase.writes.push_back(in);
      take_parts(phase, parts);
      return;
    }
    case Op::all_to_all: {
      if (!call_.send_counts.empty()) return plan_uneven();
      const auto sent = even_parts(in, ranks_), received = even_parts(out, ranks_);
      plan_parts(phase, sent);
      for (std::size_t r = 0; r < received.size(); ++r) phase.takings[r].to = received[r].data();
      copy_bytes(received[mine].data(), sent[mine].data(), sent[mine].size());
      return;
    }
    case Op::broadcast:
      if (is_root) phase.writes.push_back(out);
      phase.takings[root] = {.segments = {{.taken = out.size()}}, .to = out.data()};
      return;
    case Op::reduce:
      if (is_root) {
        for (Taking& taking : phase.takings) taking.segments = {{.taken = in.size()}};
        phase.sum = Sum{.mine = in, .to = out.data()};
        return;
      }
      phase.writes.push_back(in);
      skip_all_but(root, phase, in.size());
      return;
    case Op::gather:
      if (is_root) {
        const auto parts = even_parts(out, ranks_);
        take_parts(phase, parts);
        copy_bytes(parts[mine].data(), in.data(), in.size());
        return;
      }
      phase.writes.push_back(in);
      skip_all_but(root, phase, in.size());
      return;
    case Op::scatter: {
      if (is_root) {
        const auto parts = even_parts(in, ranks_);
        for (std::size_t r = 0; r < parts.size(); ++r)
          if (r != mine) phase.writes.push_back(parts[r]);
        copy_bytes(out.data(), parts[mine].data(), out.size());
        return;
      }
      const std::size_t before = mine > root ? mine - 1 : mine, all = static_cast<std::size_t>(ranks_) - 1;
      phase.takings[root] = {.segments = {{.skipped = before * out.size(), .taken = out.size()}},
                             .after = (all - before - 1) * out.size(),
                             .to = out.data()};
      return;
    }
    case Op::replay:
    case Op::barrier:
    case Op::step_end: return;
    case Op::send:
    case Op::recv:
    case Op::batch: throw InternalError("a message is no collective");
  }
}

void Exchange::take_parts(Phase& phase, const std::vector<std::span<std::byte>>& parts) {
  for (std::size_t r = 0; r < parts.size(); ++r)
    phase.takings[r] = {.segments = {{.taken = parts[r].size()}}, .to = parts[r].data()};
}

void Exchange::skip_all_but(std::size_t root, Phase& phase, std::size_t bytes) {
  for (std::size_t r = 0; r < phase.takings.size(); ++r) phase.takings[r].after = r == root ? 0 : bytes;
}

void Exchange::plan_all_reduce() {
  const std::span<std::byte> all = bytes_of(call_.output);
  const auto mine = static_cast<std::size_t>(me_);
  if (ranks_ == 2 || all.size() < kTwoPhases) {
    Phase& phase = phases_.front();
    phase.writes.push_back(all);
    for (Taking& taking : phase.takings) taking.segments = {{.taken = all.size()}};
    phase.sum = Sum{.mine = all, .to = all.data(), .over_input = true};
    return;
  }
  const auto parts = nearly_even_parts(all, call_.output.element_size(), ranks_);
  plan_parts(phases_.front(), parts);
  phases_.front().sum = Sum{.mine = parts[mine], .to = parts[mine].data()};
  Phase& gather = phases_.emplace_back();
  gather.writes.push_back(parts[mine]);
  gather.takings.resize(parts.size());
  take_parts(gather, parts);
}

void Exchange::plan_parts(Phase& phase, const std::vector<std::span<std::byte>>& parts) {
  const auto mine = static_cast<std::size_t>(me_);
  std::size_t longest = 0;
  for (const auto& part : parts) longest = std::max(longest, part.size());
  // A turn of all blocks fits twice into the ring.
  const std::size_t fits = memory_.outbox(me_).capacity() / (2 * (parts.size() - 1)) / kStreamLine * kStreamLine;
  const std::size_t length = std::min(kStreamChunk, fits);
  for (std::size_t begin = 0; begin < longest; begin += length) {
    const auto block = [&](std::size_t r) {
      const std::size_t from = std::min(begin, parts[r].size());
      return parts[r].subspan(from, std::min(length, parts[r].size() - from));
    };
    for (std::size_t r = 0; r < parts.size(); ++r)
      if (r != mine) phase.writes.push_back(block(r));
    for (std::size_t peer = 0; peer < parts.size(); ++peer) {
      Taking& taking = phase.takings[peer];
      taking.segments.push_back({.skipped = std::exchange(taking.after, 0), .taken = block(mine).size()});
      for (std::size_t r = 0; r < parts.size(); ++r)
        if (r != peer && r != mine) (r < mine ? taking.segments.back().skipped : taking.after) += block(r).size();
    }
  }
}

/// What the others skip follows from their counts, which come with their headers.
void Exchange::plan_uneven() {
  Phase& phase = phases_.front();
  const std::size_t row = row_bytes(call_.input);
  std::span<std::byte> in = bytes_of(call_.input), out = bytes_of(call_.output);
  std::span<std::byte> own_in, own_out;
  for (int r = 0; r < ranks_; ++r) {
    const auto i = static_cast<std::size_t>(r);
    const std::size_t sent = static_cast<std::size_t>(call_.send_counts[i]) * row,
                      received = static_cast<std::size_t>(call_.recv_counts[i]) * row;
    if (r == me_) {
      own_in = in.first(sent), own_out = out.first(received);
    } else {
      phase.writes.push_back(in.first(sent));
      phase.takings[i] = {.segments = {{.taken = received}}, .to = out.data()};
    }
    in = in.subspan(sent), out = out.subspan(received);
  }
  copy_bytes(own_out.data(), own_in.data(), own_in.size());
}

std::size_t Exchange::Taking::bytes() const {
  std::size_t sum = after;
  for (const Segment& one : segments) sum += one.skipped + one.taken;
  return sum;
}

/// Whole lines; nothing is taken from the rank itself.
void Exchange::finish_phase(Phase& phase) {
  std::size_t bytes = 0;
  for (const auto& span : phase.writes) bytes += span.size();
  phase.writes.push_back(std::span(kPadding).first(padding_of(bytes)));
  for (Taking& taking : phase.takings) taking.after += padding_of(taking.bytes());
  phase.takings[static_cast<std::size_t>(me_)].done = true;
}

void Exchange::ring_all() const {
  for (int r = 0; r < ranks_; ++r)
    if (r != me_) ring_(r);
}

bool Exchange::write() {
  if (is_written() || written_phases_ > read_phases_) return false;  // a phase writes what the one before it has summed
  ByteStream outbox = memory_.outbox(me_);
  const Phase& phase = phases_[written_phases_];
  bool moved = false;
  while (written_spans_ < phase.writes.size()) {
    const std::span<const std::byte> left = phase.writes[written_spans_].subspan(written_bytes_);
    if (left.empty()) {
      ++written_spans_, written_bytes_ = 0;
      continue;
    }
    const std::size_t n = outbox.write(left.first(std::min(left.size(), kStreamChunk)));
    if (n == 0 && outbox.waits_for_room()) break;
    written_bytes_ += n, phase_bytes_ += n;
    moved = true;
    if (n == kStreamChunk) ring_all();
  }
  if (moved) ring_all();
  if (written_spans_ < phase.writes.size()) return moved;
  ++written_phases_;
  written_spans_ = phase_bytes_ = 0;
  return true;
}

bool Exchange::read() {
  bool moved = read_headers();
  while (read_phases_ < phases_.size()) {
    Phase& phase = phases_[read_phases_];
    moved = (phase.sum ? take_sum(phase) : take_copies(phase)) || moved;
    const bool done = std::ranges::all_of(phase.takings, [](const Taking& taking) { return taking.done; });
    if (!done || headers_ < ranks_) break;
    ++read_phases_;
    moved = true;
  }
  return moved;
}

void Exchange::consume(int peer, std::size_t bytes) {
  if (bytes > 0 && memory_.outbox(peer).consume(me_, bytes)) ring_(peer);
}

bool Exchange::read_headers() {
  bool moved = false;
  for (int peer = 0; peer < ranks_ && headers_ < ranks_; ++peer) {
    if (has_header_[static_cast<std::size_t>(peer)]) continue;
    const ByteStream stream = memory_.outbox(peer);
    const std::optional<CallHeader> header = next_header(stream, me_);
    if (!header) continue;
    compare_(peer, header->record);
    if (header->counts != counts_.size())
      throw CommError(CommError::Kind::hang_or_mismatch,
                      text(header_.record.str(), ": rank ", peer, " of the group gave ", header->counts,
                           " row counts, rank ", me_, " ", counts_.size()));
    const std::size_t head = phases_.front().head;  // of the same length in all streams
    if (stream.available(me_) < head) continue;
    if (!counts_.empty()) read_counts(peer);
    consume(peer, head);
    has_header_[static_cast<std::size_t>(peer)] = true;
    ++headers_;
    moved = true;
  }
  return moved;
}

void Exchange::read_counts(int peer) {
  std::vector<std::byte> head(sizeof(CallHeader) + counts_.size() * sizeof(std::int64_t));
  memory_.outbox(peer).copy_next(me_, head);
  std::vector<std::int64_t> theirs(counts_.size());
  copy_bytes(theirs.data(), head.data() + sizeof(CallHeader), std::span(theirs).size_bytes());
  const auto mine = static_cast<std::size_t>(me_);
  const std::int64_t expected = call_.recv_counts[static_cast<std::size_t>(peer)];
  if (theirs[mine] != expected)
    throw CommError(CommError::Kind::hang_or_mismatch,
                    text(header_.record.str(), ": rank ", peer, " of the group sends ", theirs[mine], " rows to rank ",
                         me_, ", which expects ", expected));
  Taking& taking = phases_.front().takings[static_cast<std::size_t>(peer)];
  const std::size_t row = row_bytes(call_.input);
  std::size_t before = 0, after = 0;
  for (std::size_t r = 0; r < theirs.size(); ++r)
    if (r != mine && r != static_cast<std::size_t>(peer))
      (r < mine ? before : after) += static_cast<std::size_t>(theirs[r]) * row;
  taking.segments.front().skipped = before;
  taking.after = after;
  taking.after += padding_of(taking.bytes());
}

/// To the next bytes that this rank takes, or to the end of the phase.
void Exchange::skip(int peer, Taking& taking) {
  while (taking.segment < taking.segments.size() && taking.taken == taking.segments[taking.segment].taken) {
    ++taking.segment;
    taking.taken = 0;
    if (taking.segment < taking.segments.size()) consume(peer, taking.segments[taking.segment].skipped);
  }
  if (taking.segment < taking.segments.size()) return;
  consume(peer, taking.after);
  taking.done = true;
}

void Exchange::take(int peer, Taking& taking, std::size_t bytes) {
  consume(peer, bytes);
  taking.taken += bytes;
  skip(peer, taking);
}

/// Whether the stream of the peer is at the data of this phase.
bool Exchange::is_begun(Phase& phase, int peer) {
  Taking& taking = phase.takings[static_cast<std::size_t>(peer)];
  if (!has_header_[static_cast<std::size_t>(peer)]) return false;
  if (!std::exchange(taking.begun, true)) {
    if (!taking.segments.empty()) consume(peer, taking.segments.front().skipped);
    skip(peer, taking);
  }
  return true;
}

bool Exchange::take_copies(Phase& phase) {
  bool moved = false;
  for (int peer = 0; peer < ranks_; ++peer) {
    Taking& taking = phase.takings[static_cast<std::size_t>(peer)];
    if (taking.done || !is_begun(phase, peer)) continue;
    while (!taking.done) {
      const std::span<const std::byte> next = memory_.outbox(peer).peek(me_);
      const std::size_t n = std::min(next.size(), taking.segments[taking.segment].taken - taking.taken);
      if (n == 0) break;
      copy_bytes(taking.to, next.data(), n);
      taking.to += n;
      take(peer, taking, n);
      moved = true;
    }
    moved = moved || taking.done;
  }
  return moved;
}

/// The segments of all peers have the same lengths, and are added together.
bool Exchange::take_sum(Phase& phase) {
  Sum& sum = *phase.sum;
  const std::size_t total = sum.mine.size(), element = call_.output.element_size();
  bool moved = false, begun = true;
  for (int peer = 0; peer < ranks_; ++peer) begun = (peer == me_ || is_begun(phase, peer)) && begun;
  if (!begun) return false;
  std::vector<const std::byte*> others(static_cast<std::size_t>(ranks_));
  while (sum.done < total) {
    std::size_t n = std::min(total - sum.done, kStreamChunk);
    if (sum.over_input && !is_written()) n = std::min(n, phase_bytes_ - std::min(phase_bytes_, phase.head + sum.done));
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == me_) continue;
      const Taking& taking = phase.takings[static_cast<std::size_t>(peer)];
      const std::span<const std::byte> next = memory_.outbox(peer).peek(me_);
      others[static_cast<std::size_t>(peer)] = next.data();
      n = std::min({n, next.size(), taking.segments[taking.segment].taken - taking.taken});
    }
    n = n / element * element;
    if (n == 0) break;
    add_chunk(sum, others, n);
    sum.done += n;
    for (int peer = 0; peer < ranks_; ++peer)
      if (peer != me_) take(peer, phase.takings[static_cast<std::size_t>(peer)], n);
    moved = true;
  }
  return moved;
}

void Exchange::add_chunk(const Sum& sum, const std::vector<const std::byte*>& others, std::size_t bytes) const {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = call_.output.scalar_type();
  std::vector<at::Tensor> by_rank;
  for (int r = 0; r < ranks_; ++r)
    by_rank.push_back(
        view_of(r == me_ ? sum.mine.data() + sum.done : others[static_cast<std::size_t>(r)], bytes, dtype));
  at::Tensor out = view_of(sum.to + sum.done, bytes, dtype);
  if (ranks_ > 2) {
    out.copy_(reduce_in_rank_order(by_rank, call_.reduce));
    return;
  }
  switch (call_.reduce) {
    case Reduce::sum:
    case Reduce::avg: at::add_out(out, by_rank[0], by_rank[1]); break;
    case Reduce::max: at::maximum_out(out, by_rank[0], by_rank[1]); break;
    case Reduce::min: at::minimum_out(out, by_rank[0], by_rank[1]); break;
  }
}

bool Exchange::waits_for(int peer) const {
  if (peer == me_) return false;
  const auto i = static_cast<std::size_t>(peer);
  if (!is_written() && memory_.outbox(me_).is_slow(peer)) return true;
  if (!has_header_[i]) return true;
  if (read_phases_ == phases_.size() || phases_[read_phases_].takings[i].done) return false;
  const std::size_t least = phases_[read_phases_].sum ? call_.output.element_size() : 1;
  return memory_.outbox(peer).available(me_) < least;
}

}  // namespace trireme
