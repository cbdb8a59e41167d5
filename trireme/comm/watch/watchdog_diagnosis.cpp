// What a Watchdog shows to the other ranks, and how it finds out why a call did not end.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "trireme/base/copy_bytes.hpp"
#include "trireme/base/fnv.hpp"
#include "trireme/comm/calls/mismatch.hpp"
#include "trireme/comm/watch/watchdog.hpp"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAskWholeWorld = 64;  // Note [Diagnosis of a hang]
constexpr std::size_t kAskedCalls = 8;

/// Of the calls of its step a rank publishes the last ones: the store keeps those of all ranks.
std::size_t most_shown_calls(int world_size) {
  return std::clamp<std::size_t>(2'000'000 / static_cast<std::size_t>(world_size), 64, 2000);
}

std::string seconds(double s) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.1f s", s);
  return digits;
}

/// Only for display: clocks of different hosts may differ.
std::int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string host_of(const FlightRecord& box) { return {box.host, strnlen(box.host, sizeof box.host)}; }

/// Whether the rank with these calls has reached the call that `record` of rank `from` waits in.
bool arrived(const FlightRecord& box, const CallRecord& record, int from) {
  const std::uint64_t n = std::min<std::uint64_t>(box.calls, FlightRecord::kCalls);
  for (std::uint64_t i = 0; i < n; ++i) {
    const CallRecord& r = box.ring[i];
    if (std::strncmp(r.group, record.group, sizeof r.group) != 0 || r.pairwise() != record.pairwise()) continue;
    if (record.pairwise() ? r.op != record.op && r.peer == from && r.seq >= record.seq : r.seq >= record.seq)
      return true;
  }
  return false;
}

/// Gloo's text names its own source files and addresses; who reads an error needs what happened. Others as they are.
std::string in_short(const std::string& cause) {
  if (cause.find("gloo") == std::string::npos && !cause.starts_with("[/")) return cause;
  constexpr std::pair<const char*, const char*> kKnown[] = {
      {"closed by peer", "its connection was closed"}, {"reset by peer", "its connection was reset"},
      {"Broken pipe", "its connection was closed"},    {"refused", "its connection was refused"},
      {"imed out", "its connection timed out"},        {"No route to host", "no route to its host"},
      {"unreachable", "its network is unreachable"}};
  for (const auto& [words, meaning] : kKnown)
    if (cause.find(words) != std::string::npos) return meaning;
  return "its connection broke";
}

}  // namespace

std::string Watchdog::key(const char* what, int rank) { return text("watchdog/", what, "/", rank); }

void Watchdog::show_state() {
  const FlightRecord box = recorder_->snapshot();
  store_->set(key("seen", box.rank), text(wall_ms(), "\n", host_of(box), ", pid ", box.pid, "\n", last_call(box)));
  if (box.progress != std::exchange(shown_progress_, box.progress))
    store_->set(key("progress", box.rank), std::to_string(box.progress));
}

void Watchdog::answer_alarm() {
  answered_ = true;
  const FlightRecord box = recorder_->snapshot();
  std::vector<CallRecord> calls = recorder_->step_calls();
  if (world_size_ > kAskWholeWorld) store_->set(key("summary", box.rank), to_bytes(summary_of(box, calls)));
  if (const std::size_t most = most_shown_calls(world_size_); calls.size() > most)
    calls.erase(calls.begin(), calls.end() - static_cast<std::ptrdiff_t>(most));
  std::vector<std::uint8_t> bytes(sizeof box + calls.size() * sizeof(CallRecord));
  std::memcpy(bytes.data(), &box, sizeof box);
  copy_bytes(bytes.data() + sizeof box, calls.data(), calls.size() * sizeof(CallRecord));
  store_->set(key("shown", box.rank), bytes);
  dump_calls(box, options_.hang_folder);
}

void Watchdog::raise_alarm(bool late) {
  explains_ = true;
  const FlightRecord box = recorder_->snapshot();
  dump_calls(box, options_.hang_folder);
  with_store(false, [&] {
    const std::string rank = std::to_string(box.rank);
    if (late) store_->set("watchdog/late", rank);
    store_->set("watchdog/alarm", rank);
    if (!answered_) answer_alarm();
    return true;
  });
}

/// A rank whose call timed out. Gloo then closes its connections, which looks to the others as if it had died.
std::string Watchdog::who_was_late(double waited, const CallRecord& record) {
  // If the store is gone and we have waited as long ourselves, that is the most likely cause.
  const std::string guess = waited >= 0.9 * record.limit_s ? "another rank" : "";
  return with_store(guess, [this] {
    return store_->check({"watchdog/late"}) ? "rank " + store_->get_to_str("watchdog/late") : std::string();
  });
}

/// Empty: nothing is there.
std::vector<std::uint8_t> Watchdog::published(const std::string& place) {
  return with_store(std::vector<std::uint8_t>(),
                    [&] { return store_->check({place}) ? store_->get(place) : std::vector<std::uint8_t>(); });
}

std::optional<Watchdog::Shown> Watchdog::shown_by(int rank) {
  const std::vector<std::uint8_t> bytes = published(key("shown", rank));
  Shown shown;
  if (bytes.size() < sizeof shown.box || (bytes.size() - sizeof shown.box) % sizeof(CallRecord) != 0)
    return std::nullopt;
  std::memcpy(&shown.box, bytes.data(), sizeof shown.box);
  shown.calls.resize((bytes.size() - sizeof shown.box) / sizeof(CallRecord));
  copy_bytes(shown.calls.data(), bytes.data() + sizeof shown.box, shown.calls.size() * sizeof(CallRecord));
  // Whoever reaches the store may have written it.
  const bool fine = is_valid(shown.box) && shown.box.rank == rank && shown.box.world_size == world_size_ &&
                    shown.calls.size() <= most_shown_calls(world_size_) &&
                    std::ranges::all_of(shown.calls, [](const CallRecord& r) { return is_valid(r); });
  return fine ? std::optional(std::move(shown)) : std::nullopt;
}

std::optional<RankSummary> Watchdog::summary_by(int rank) {
  std::optional<RankSummary> summary = summary_from(published(key("summary", rank)));
  if (summary && (summary->rank != rank || summary->world_size != world_size_)) summary.reset();
  return summary;
}

std::string Watchdog::last_seen(int rank) {
  return with_store(std::string("and neither does the store"), [&]() -> std::string {
    if (!store_->check({key("seen", rank)})) return "and was never seen";
    const std::string state = store_->get_to_str(key("seen", rank));
    const std::size_t first = state.find('\n'),
                      second = first == std::string::npos ? first : state.find('\n', first + 1);
    if (second == std::string::npos) return "and what it last said cannot be read";
    const double ago = static_cast<double>(wall_ms() - std::strtoll(state.c_str(), nullptr, 10)) * 1e-3;
    const std::string what = state.substr(second + 1);
    return text("(", state.substr(first + 1, second - first - 1), "), last seen ", seconds(ago), " ago in ",
                what.empty() ? "no call" : what);
  });
}

/// A rank that answers within two heartbeats is alive; queries the group, and in a small world all ranks.
Watchdog::Answers Watchdog::ask(const Membership& members, const CallRecord& record, bool late) {
  const bool whole_world = world_size_ <= kAskWholeWorld;
  const int me = members.world_ranks[static_cast<std::size_t>(members.rank)];
  std::set<int> open(members.world_ranks.begin(), members.world_ranks.end());
  if (whole_world)
    for (int r = 0; r < world_size_; ++r) open.insert(r);
  else if (record.pairwise())
    open = {members.world_ranks[static_cast<std::size_t>(record.peer)]};
  open.erase(me);
  Answers answers;
  answers.calls[me] = recorder_->step_calls();
  std::map<int, RankSummary> summaries;
  const auto add_shown = [&](int r) {
    std::optional<Shown> shown = shown_by(r);
    if (!shown) return false;
    answers.ranks[r] = {.where = text(host_of(shown->box), ", pid ", shown->box.pid),
                        .last_call = last_call(shown->box),
                        .arrived = arrived(shown->box, record, members.rank)};
    answers.calls[r] = std::move(shown->calls);
    return true;
  };
  const auto add_summary = [&](int r) {
    std::optional<RankSummary> summary = summary_by(r);
    if (!summary) return false;
    answers.ranks[r] = {.where = text(summary->host, ", pid ", summary->pid),
                        .last_call = summary->last_call,
                        .arrived = has_arrived(*summary, record)};
    summaries.emplace(r, std::move(*summary));
    return true;
  };
  const auto deadline = Clock::now() + patience(world_size_, late);
  while (!open.empty() && Clock::now() < deadline) {
    std::erase_if(open, [&](int r) { return whole_world || record.pairwise() ? add_shown(r) : add_summary(r); });
    if (!open.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  for (const int r : unlike_ranks(summaries, record.group, kAskedCalls))
    if (std::optional<Shown> shown = shown_by(r)) answers.calls[r] = std::move(shown->calls);
  return answers;
}

/// The ranks of the group that have not reached the call, and in a small world other ranks that do not answer.
void Watchdog::add_absent(Findings& findings, const Membership& members, const CallRecord& record,
                          const Answers& answers) {
  findings.absent.clear();
  findings.words.clear();
  findings.came = findings.asked = 0;
  if (store_is_lost()) {
    findings.words =
        "\n  the store does not answer: this host may be cut off, or the process that hosts the store is stopped; "
        "which ranks arrived is not known";
    return;
  }
  const int me = members.world_ranks[static_cast<std::size_t>(members.rank)];
  for (int i = 0; i < members.size(); ++i) {
    const int r = members.world_ranks[static_cast<std::size_t>(i)];
    if (record.pairwise() && i != record.peer && r != me) continue;
    ++findings.asked;
    const auto at = answers.ranks.find(r);
    if (r == me || (at != answers.ranks.end() && at->second.arrived)) {
      ++findings.came;
      continue;
    }
    findings.absent.push_back(r);
    findings.words += text("\n  missing: rank ", r);
    if (at == answers.ranks.end())
      findings.words += text(" does not answer ", last_seen(r));
    else
      findings.words += text(" (", at->second.where, ") is in ", at->second.last_call);
  }
  const std::set<int> group(members.world_ranks.begin(), members.world_ranks.end());
  for (int r = 0; r < world_size_ && world_size_ <= kAskWholeWorld; ++r)
    if (!answers.ranks.contains(r) && !group.contains(r))
      findings.words += text("\n  likely cause: rank ", r, " does not answer ", last_seen(r));
  if (store_is_lost()) add_absent(findings, members, record, answers);  // since: nothing above was its answer
}

Watchdog::Findings Watchdog::own_findings(const Membership& members, const CallRecord& record, bool late) {
  const Answers answers = ask(members, record, late);
  Findings out;
  add_absent(out, members, record, answers);
  out.difference = first_difference(answers.calls);
  return out;
}

/// Note [Diagnosis of a hang]
Watchdog::Findings Watchdog::findings(const Membership& members, const CallRecord& record, bool late) {
  if (world_size_ <= kAskWholeWorld || record.pairwise()) return own_findings(members, record, late);
  std::uint64_t group = fnv1a(members.str());
  for (const int r : members.world_ranks) group = fnv1a(text(r, " "), group);
  const std::string place = text("watchdog/found/", group, "/", record.seq);
  const std::string me = std::to_string(members.world_ranks[static_cast<std::size_t>(members.rank)]);
  const std::string asks = with_store(me, [&] { return store_->compareSet(place + "/by", std::string(), me); });
  if (asks == me) {
    const Findings out = own_findings(members, record, late);
    with_store(false, [&] {
      store_->set(place, to_text(out));
      return true;
    });
    return out;
  }
  // It may have begun a moment ago; and it may be gone, then this rank asks itself.
  const auto deadline = Clock::now() + 2 * patience(world_size_, late);
  const auto between = std::chrono::milliseconds(50 + world_size_ / 10);
  for (; Clock::now() < deadline; std::this_thread::sleep_for(between)) {
    const std::string found =
        with_store(std::string(), [&] { return store_->check({place}) ? store_->get_to_str(place) : std::string(); });
    if (std::optional<Findings> out = findings_from(found)) return *out;
  }
  return own_findings(members, record, late);
}

/// "came asked (1 if they differ) (bytes of the words) absent...\n", then the words, then the difference.
std::string Watchdog::to_text(const Findings& findings) {
  std::string out =
      text(findings.came, " ", findings.asked, " ", findings.difference ? 1 : 0, " ", findings.words.size());
  for (const int r : findings.absent) out += text(" ", r);
  return text(out, "\n", findings.words, findings.difference.value_or(""));
}

std::optional<Watchdog::Findings> Watchdog::findings_from(const std::string& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream head(text.substr(0, end));
  Findings out;
  int differs = 0;
  std::size_t bytes = 0;
  if (!(head >> out.came >> out.asked >> differs >> bytes) || bytes > text.size() - end - 1) return std::nullopt;
  for (int r = 0; head >> r;) out.absent.push_back(r);
  out.words = text.substr(end + 1, bytes);
  if (differs != 0) out.difference = text.substr(end + 1 + bytes);
  return out;
}

/// The location of the flight records, and the status line that every runtime failure has.
std::string Watchdog::last_lines(int rank, const CallRecord& record, const std::string& how_it_ended) const {
  const FlightRecord box = recorder_->snapshot();
  std::string at = record.tag.str(), place(box.place, strnlen(box.place, sizeof box.place));
  for (std::string* words : {&at, &place})
    if (!words->empty()) *words += " | ";
  return text("\n  every rank's last ", FlightRecord::kCalls, " calls: ", options_.hang_folder,
              "/rank*.txt\n  rank=", rank, "/", world_size_, " ", host_of(box), " ", box.pid, " | ", place, at,
              record.what(), " group ", record.group, " seq ", record.seq, " | ", how_it_ended);
}

CommError Watchdog::explain(const Membership& members, const CallRecord& record, const std::string& cause) {
  const double waited = static_cast<double>(steady_ns() - record.started_ns) * 1e-9;
  // The backend's own timers have the same limit, and may be a little ahead of our clock.
  const bool late = waited >= 0.99 * record.limit_s;
  const int me = members.world_ranks[static_cast<std::size_t>(members.rank)];
  raise_alarm(late);
  const Findings found = findings(members, record, late);
  const std::string late_elsewhere = late ? "" : who_was_late(waited, record);
  const bool waiting = late || !late_elsewhere.empty();

  std::string how_it_ended = waiting ? text("waited ", seconds(waited)) : std::string("connection lost");
  for (std::size_t i = 0; i < found.absent.size(); ++i)
    how_it_ended += text(i > 0 ? ", " : waiting ? " for rank " : " to rank ", found.absent[i]);
  const std::string end = last_lines(me, record, how_it_ended);

  if (found.difference) return {CommError::Kind::hang_or_mismatch, *found.difference + end};
  const std::string what = text(record.what(), " #", record.seq, " on group ", members.str());
  if (waiting)
    return {CommError::Kind::hang_or_mismatch,
            // What this rank waited until it was scheduled again is in `end`.
            text(what, " timed out ", late ? std::string() : text("on ", late_elsewhere, ", here "), "after ",
                 seconds(late ? record.limit_s : waited),
                 found.asked == 0 ? std::string() : text(": ", found.came, " of ", found.asked, " ranks arrived"),
                 found.words, "\n  fix: ",
                 found.asked == 0 ? "check the network of this host, and the process that hosts the store"
                                  : "see what the missing rank does",
                 "; raise ", record.limit_s == options_.timeout_s ? "comm.timeout_s (" : "comm.init_timeout_s (",
                 record.limit_s, ") if the wait is expected", end)};
  if (cause.find("size doesn't match") != std::string::npos)  // Gloo's error for a message of the wrong length
    return {CommError::Kind::hang_or_mismatch,
            text(what, ": another rank of the group did not make the same call", found.words, end)};
  return {CommError::Kind::peer_lost, text(what, ": a peer is lost (", in_short(cause), ")", found.words, end)};
}

}  // namespace trireme
