#include "trireme/comm/calls/mismatch.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

namespace trireme {
namespace {

constexpr const char* kRule =
    "  every rank of a group must make the same calls in the same order\n"
    "  fix: look for a call that depends on the rank; comm.check = \"strict\" stops at the first one";

std::string call_line(int rank, const CallRecord& r) {
  const std::string at = r.tag.str();
  return text("  rank ", rank, ": #", r.seq, " ", r.what(), at.empty() ? "" : " | ", at, "\n");
}

std::string both_calls(const std::string& group, int rank_a, const CallRecord& a, int rank_b, const CallRecord& b) {
  return text("ranks ", rank_a, " and ", rank_b, " of group ", group, " did not make the same call\n",
              call_line(rank_a, a), call_line(rank_b, b), kRule);
}

std::vector<CallRecord> collectives_of(const std::vector<CallRecord>& calls) {
  std::vector<CallRecord> found;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(found),
               [](const CallRecord& r) { return !r.pairwise(); });
  return found;
}

std::vector<CallRecord> messages_of(const std::vector<CallRecord>& calls, Op op, int peer) {
  std::vector<CallRecord> found;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(found),
               [=](const CallRecord& r) { return r.op == op && r.peer == peer; });
  return found;
}

/// One of two ranks made calls that the other, whose step has ended, did not make.
std::optional<std::string> left_out(const std::string& group, const RankCalls& less,
                                    const std::vector<CallRecord>& fewer, const RankCalls& more,
                                    const std::vector<CallRecord>& calls) {
  const std::uint64_t last = fewer.empty() ? 0 : fewer.back().seq;
  const auto extra = std::find_if(calls.begin(), calls.end(), [last](const CallRecord& r) { return r.seq > last; });
  // Without any call as a reference, the sequence number may start anywhere.
  if (!less.ended || extra == calls.end() || (fewer.empty() && extra->seq != calls.front().seq)) return std::nullopt;
  // The end of a step can reach one rank and not another, as when a link is cut: that one is late, not wrong.
  if (less.ended_step >= 0 && extra->tag.step > less.ended_step) return std::nullopt;
  return text("ranks ", less.rank, " and ", more.rank, " of group ", group, " did not make the same number of calls\n",
              call_line(more.rank, *extra), "  rank ", less.rank, ": ended its step without that call",
              fewer.empty() ? "" : text("; its last is #", last, " ", fewer.back().what()), "\n", kRule);
}

using Alike = bool (*)(const CallRecord&, const CallRecord&);

/// Calls are matched by their sequence numbers, since one side may have kept fewer.
std::optional<std::string> difference(const std::string& group, const RankCalls& a,
                                      const std::vector<CallRecord>& calls_a, const RankCalls& b,
                                      const std::vector<CallRecord>& calls_b, Alike alike) {
  for (const CallRecord& x : calls_a) {
    const auto y = std::find_if(calls_b.begin(), calls_b.end(), [&x](const CallRecord& r) { return r.seq == x.seq; });
    if (y != calls_b.end() && !alike(x, *y)) return both_calls(group, a.rank, x, b.rank, *y);
  }
  if (auto found = left_out(group, a, calls_a, b, calls_b)) return found;
  return left_out(group, b, calls_b, a, calls_a);
}

/// The world ranks in "dp{0,2}"; empty if the text was truncated.
std::vector<int> ranks_in(const std::string& group) {
  std::vector<int> ranks;
  const std::size_t open = group.find('{'), close = group.find('}');
  if (open == std::string::npos || close == std::string::npos || group.find("...") != std::string::npos) return {};
  int number = 0;
  for (std::size_t i = open + 1; i <= close; ++i) {
    if (std::isdigit(static_cast<unsigned char>(group[i])) != 0) {
      number = 10 * number + (group[i] - '0');
    } else {
      ranks.push_back(number);
      number = 0;
    }
  }
  return ranks;
}

bool is_step_end(const CallRecord& call) {
  return call.op == Op::step_end || std::string_view(call.group).starts_with("step{");
}

RankCalls on_group(int rank, const std::vector<CallRecord>& all, bool may_have_ended, const std::string& group,
                   const std::vector<int>& members) {
  RankCalls one{.rank = rank, .ended = may_have_ended && !all.empty() && is_step_end(all.back())};
  if (one.ended) one.ended_step = all.back().tag.step;
  const auto at = std::find(members.begin(), members.end(), rank);
  if (at != members.end()) one.in_group = static_cast<int>(at - members.begin());
  std::copy_if(all.begin(), all.end(), std::back_inserter(one.calls),
               [&group](const CallRecord& r) { return group == r.group; });
  return one;
}

}  // namespace

CommError mismatch_error(const std::string& group, int rank_a, const CallRecord& a, int rank_b, const CallRecord& b) {
  return {CommError::Kind::hang_or_mismatch, both_calls(group, rank_a, a, rank_b, b)};
}

std::optional<std::string> first_difference(const std::string& group, const RankCalls& a, const RankCalls& b) {
  if (auto found = difference(group, a, collectives_of(a.calls), b, collectives_of(b.calls), same_call)) return found;
  if (a.in_group < 0 || b.in_group < 0) return std::nullopt;
  if (auto found = difference(group, a, messages_of(a.calls, Op::send, b.in_group), b,
                              messages_of(b.calls, Op::recv, a.in_group), same_message))
    return found;
  return difference(group, b, messages_of(b.calls, Op::send, a.in_group), a, messages_of(a.calls, Op::recv, b.in_group),
                    same_message);
}

std::vector<CallRecord> until_step_end(std::vector<CallRecord> calls) {
  // In strict mode every group has its own end of the step.
  auto end = std::ranges::find_if(calls, is_step_end);
  while (end != calls.end() && is_step_end(*end)) ++end;
  calls.erase(end, calls.end());
  return calls;
}

namespace {

std::optional<std::string> first_difference_in(const std::map<int, std::vector<CallRecord>>& rank_calls,
                                               bool may_have_ended) {
  std::set<std::string> groups;
  for (const auto& [rank, calls] : rank_calls)
    for (const CallRecord& r : calls) groups.insert(r.group);
  for (const std::string& group : groups) {
    if (group.starts_with("step{")) continue;  // its calls are the check itself
    const std::vector<int> members = ranks_in(group);
    for (auto a = rank_calls.begin(); a != rank_calls.end(); ++a)
      for (auto b = std::next(a); b != rank_calls.end(); ++b) {
        const RankCalls one = on_group(a->first, a->second, may_have_ended, group, members),
                        two = on_group(b->first, b->second, may_have_ended, group, members);
        const bool both_in =
            members.empty() ? !one.calls.empty() && !two.calls.empty() : one.in_group >= 0 && two.in_group >= 0;
        if (!both_in) continue;
        if (auto found = first_difference(group, one, two)) return found;
      }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> first_difference(const std::map<int, std::vector<CallRecord>>& rank_calls) {
  std::map<int, std::vector<CallRecord>> of_step;
  for (const auto& [rank, calls] : rank_calls) of_step[rank] = until_step_end(calls);
  if (auto found = first_difference_in(of_step, true)) return found;
  return first_difference_in(rank_calls, false);
}

}  // namespace trireme
