#include "trireme/comm/calls/flight_recorder.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include <unistd.h>

#include "trireme/base/error.hpp"
#include "trireme/base/file_output.hpp"

// Note [Checksum]
// Every collective call of a group has a hash. The group's first rank adds (size - 1) times the hash to its checksum,
// the others subtract it once: if all made the same calls the checksums of the group sum to zero modulo 2^64, and if
// one call differs the sum is effectively random. A send adds the hash of (from, to, number of earlier messages, dtype,
// elements), the matching receive subtracts the same. So one all-reduce of eight bytes over the world, once per step,
// checks every call on every group.

namespace trireme {
namespace {

std::string seconds(std::int64_t ns) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.1f s", static_cast<double>(ns) * 1e-9);
  return digits;
}

/// Oldest first.
std::vector<CallRecord> calls_of(const FlightRecord& box) {
  const std::uint64_t n = std::min<std::uint64_t>(box.calls, FlightRecord::kCalls);
  std::vector<CallRecord> calls;
  for (std::uint64_t i = box.calls - n; i < box.calls; ++i) {
    CallRecord record = box.ring[i % FlightRecord::kCalls];
    record.group[sizeof record.group - 1] = record.tag.phase[sizeof record.tag.phase - 1] = '\0';
    if (static_cast<int>(record.op) < kOps) calls.push_back(record);
  }
  return calls;
}

}  // namespace

bool is_valid(const FlightRecord& box) {
  const auto ends = [](const auto& word) { return std::memchr(word, '\0', sizeof word) != nullptr; };
  return box.magic == FlightRecord::kMagic && box.world_size >= 1 && box.rank >= 0 && box.rank < box.world_size &&
         box.pid >= 0 && ends(box.host) && ends(box.place) && ends(box.tag.phase) &&
         std::ranges::all_of(box.ring, [](const CallRecord& r) { return is_valid(r); });
}

std::string last_call(const FlightRecord& box) {
  if (box.magic != FlightRecord::kMagic) return "";
  Tag tag = box.tag;
  tag.phase[sizeof tag.phase - 1] = '\0';
  std::string words = tag.str();
  const std::vector<CallRecord> calls = calls_of(box);
  if (calls.empty()) return words;
  // The oldest unfinished call is the one that blocks the rank; else the last call.
  auto at = std::find_if(calls.begin(), calls.end(), [](const CallRecord& r) { return r.finished_ns == 0; });
  const bool waits = at != calls.end();
  if (!waits) at = calls.end() - 1;
  const std::int64_t now = steady_ns();
  words += text(words.empty() ? "" : " | ", at->what(), " group ", at->group, " seq ", at->seq);
  words += waits ? text(" (waiting for ", seconds(now - at->started_ns), ")")
                 : text(" (finished ", seconds(now - at->finished_ns), " ago)");
  return words;
}

std::string calls_text(const FlightRecord& box) {
  const std::int64_t now = steady_ns();
  const std::vector<CallRecord> calls = calls_of(box);
  std::string lines =
      text("rank ", box.rank, " of ", box.world_size, ", host ",
           std::string(box.host, strnlen(box.host, sizeof box.host)), ", pid ", box.pid, ": the last ", calls.size(),
           " of ", box.calls, " calls, oldest first\n", "began (s ago)  took (ms)  call\n");
  for (const CallRecord& r : calls) {
    char line[64];
    if (r.finished_ns == 0)
      std::snprintf(line, sizeof line, "%13.3f  %9s  ", static_cast<double>(now - r.started_ns) * 1e-9, "waiting");
    else
      std::snprintf(line, sizeof line, "%13.3f  %9.3f  ", static_cast<double>(now - r.started_ns) * 1e-9,
                    static_cast<double>(r.finished_ns - r.started_ns) * 1e-6);
    lines += line + r.str() + "\n";
  }
  return lines;
}

std::string dump_calls(const FlightRecord& box, const std::string& folder) {
  const std::string file = text(folder, "/rank", box.rank, ".txt");
  try {
    std::filesystem::create_directories(folder);
    replace_file(file, calls_text(box));
    return file;
  } catch (const std::exception& e) {
    return text(file, " could not be written: ", e.what());
  }
}

FlightRecorder::FlightRecorder(int rank, int world_size, FlightRecord* shared)
    : own_(shared == nullptr ? std::make_unique<FlightRecord>() : nullptr),
      box_(shared == nullptr ? own_.get() : shared) {
  *box_ = FlightRecord{};
  box_->rank = rank;
  box_->world_size = world_size;
  box_->pid = getpid();
  gethostname(box_->host, sizeof box_->host - 1);
  box_->seen_ns = steady_ns();
}

void FlightRecorder::set_tag(const Tag& tag) {
  const std::scoped_lock lock(mutex_);
  box_->tag = tag;
  box_->seen_ns = steady_ns();
}

Tag FlightRecorder::tag() const {
  const std::scoped_lock lock(mutex_);
  return box_->tag;
}

void FlightRecorder::set_place(const std::string& place) {
  const std::scoped_lock lock(mutex_);
  std::memset(box_->place, 0, sizeof box_->place);
  place.copy(box_->place, sizeof box_->place - 1);
}

void FlightRecorder::begin(CallRecord& record, int rank_in_group, int group_size, CheckMode check) {
  const std::scoped_lock lock(mutex_);
  record.tag = box_->tag;
  record.started_ns = box_->seen_ns = steady_ns();
  record.number = box_->calls++;
  box_->ring[record.number % FlightRecord::kCalls] = record;
  if (check == CheckMode::fast && !record.pairwise())
    checksum_ +=
        hash_of(record) * (rank_in_group == 0 ? static_cast<std::uint64_t>(group_size - 1) : ~std::uint64_t{0});
  if (step_calls_.size() < kStepCalls) step_calls_.push_back(record);
}

void FlightRecorder::finish(const CallRecord& record) {
  const std::scoped_lock lock(mutex_);
  box_->seen_ns = steady_ns();
  CallRecord& recent = box_->ring[record.number % FlightRecord::kCalls];
  if (recent.number == record.number) recent.finished_ns = box_->seen_ns;
  const std::uint64_t of_step = record.number - step_first_;
  if (record.number >= step_first_ && of_step < step_calls_.size())
    step_calls_[static_cast<std::size_t>(of_step)].finished_ns = box_->seen_ns;
}

void FlightRecorder::add_wait(const WaitSpan& wait) {
  waited_ns_ += wait.end_ns - wait.begin_ns;
  if (!keeps_waits_) return;
  const std::scoped_lock lock(mutex_);
  if (waits_.size() < kStepCalls) waits_.push_back(wait);
}

void FlightRecorder::keep_waits() {
  const std::scoped_lock lock(mutex_);
  waits_.clear();
  keeps_waits_ = true;
}

std::vector<WaitSpan> FlightRecorder::take_waits() {
  const std::scoped_lock lock(mutex_);
  keeps_waits_ = false;
  return std::exchange(waits_, {});
}

std::optional<CallLimit> FlightRecorder::set_limit(std::optional<CallLimit> limit) {
  const std::scoped_lock lock(mutex_);
  return std::exchange(limit_, limit);
}

std::optional<CallLimit> FlightRecorder::limit() const {
  const std::scoped_lock lock(mutex_);
  return limit_;
}

void FlightRecorder::add_progress() {
  const std::scoped_lock lock(mutex_);
  ++box_->progress;
  box_->seen_ns = steady_ns();
}

std::uint64_t FlightRecorder::progress() const {
  const std::scoped_lock lock(mutex_);
  return box_->progress;
}

void FlightRecorder::checkpoint_committed() {
  const std::scoped_lock lock(mutex_);
  ++box_->checkpoints;
  box_->seen_ns = steady_ns();
}

void FlightRecorder::commit_begins() {
  const std::scoped_lock lock(mutex_);
  ++box_->commits_under_way;
}

void FlightRecorder::commit_ends() {
  const std::scoped_lock lock(mutex_);
  --box_->commits_under_way;
}

bool FlightRecorder::is_committing() const {
  const std::scoped_lock lock(mutex_);
  return box_->commits_under_way > 0;
}

void FlightRecorder::add_to_checksum(std::uint64_t amount) {
  const std::scoped_lock lock(mutex_);
  checksum_ += amount;
}

std::uint64_t FlightRecorder::checksum() const {
  const std::scoped_lock lock(mutex_);
  return checksum_;
}

std::vector<CallRecord> FlightRecorder::step_calls() const {
  const std::scoped_lock lock(mutex_);
  std::vector<CallRecord> calls = last_step_calls_;
  calls.insert(calls.end(), step_calls_.begin(), step_calls_.end());
  return calls;
}

void FlightRecorder::start_step() {
  const std::scoped_lock lock(mutex_);
  checksum_ = 0;
  step_first_ = box_->calls;
  last_step_calls_.swap(step_calls_);
  step_calls_.clear();
}

void FlightRecorder::drop_last_step() {
  const std::scoped_lock lock(mutex_);
  last_step_calls_.clear();
}

CallRecord FlightRecorder::newest() const {
  const std::scoped_lock lock(mutex_);
  return box_->calls == 0 ? CallRecord{} : box_->ring[(box_->calls - 1) % FlightRecord::kCalls];
}

FlightRecord FlightRecorder::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return *box_;
}

}  // namespace trireme
