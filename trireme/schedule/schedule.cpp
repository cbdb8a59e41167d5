#include "trireme/schedule/schedule.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>

#include "trireme/base/error.hpp"

namespace trireme::schedule {
namespace {

int number(const std::string& word, int line) {
  int value = 0;
  const char* end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  require<ConfigError>(error == std::errc() && stop == end && value >= 0, "schedule, line ", line, ": '", word,
                       "' is not a whole number");
  return value;
}

std::vector<int> numbers(std::istringstream& words, int line) {
  std::vector<int> values;
  for (std::string word; words >> word;) values.push_back(number(word, line));
  return values;
}

}  // namespace

std::vector<Edge> chain(int chunks) {
  std::vector<Edge> edges;
  for (int c = 0; c + 1 < chunks; ++c) edges.push_back({c, c + 1});
  return edges;
}

Schedule of_one_rank(Program program) {
  Schedule schedule{.name = "one rank", .rank_of_chunk = {0}, .edges = {}, .programs = {}};
  for (const Action& action : program) schedule.microbatches = std::max(schedule.microbatches, action.microbatch + 1);
  schedule.programs.push_back(std::move(program));
  return schedule;
}

Schedule forward_only(Schedule schedule, int microbatches) {
  schedule.name += ", forwards only";
  schedule.microbatches = microbatches;
  for (Program& program : schedule.programs) program.clear();
  for (int m = 0; m < microbatches; ++m)
    for (int c = 0; c < schedule.chunks(); ++c) {
      const int rank = schedule.rank_of_chunk[static_cast<std::size_t>(c)];
      schedule.programs[static_cast<std::size_t>(rank)].push_back({ActionKind::F, c, m});
    }
  return schedule;
}

std::string str(const Schedule& schedule) {
  std::string out = text("schedule ", schedule.name, " microbatches ", schedule.microbatches, "\nchunks on ranks");
  for (const int rank : schedule.rank_of_chunk) out += text(" ", rank);
  out += "\n";
  if (schedule.edges != chain(schedule.chunks())) {
    out += "edges";
    for (const Edge& edge : schedule.edges) out += text(" ", edge.from, " ", edge.to);
    out += "\n";
  }
  for (int r = 0; r < schedule.ranks(); ++r)
    out += text("rank ", r, ": ", str(schedule.programs[static_cast<std::size_t>(r)]), "\n");
  return out;
}

Schedule parse_schedule(std::string_view input) {
  Schedule schedule;
  bool has_edges = false;
  std::istringstream lines{std::string(input)};
  int n = 0;
  const auto expect = [&](bool ok, const auto&... what) {
    require<ConfigError>(ok, "schedule, line ", n, ": ", what...);
  };
  for (std::string line; std::getline(lines, line);) {
    ++n;
    std::istringstream words(line);
    std::string first, word, count, extra;
    if (!(words >> first)) continue;
    if (first == "schedule") {
      words >> schedule.name >> word >> count;
      expect(word == "microbatches" && !(words >> extra), "expected 'schedule NAME microbatches N'");
      schedule.microbatches = number(count, n);
    } else if (first == "chunks") {
      words >> word >> extra;
      expect(word == "on" && extra == "ranks", "expected 'chunks on ranks R R ...'");
      schedule.rank_of_chunk = numbers(words, n);
    } else if (first == "edges") {
      const std::vector<int> ends = numbers(words, n);
      expect(ends.size() % 2 == 0, "edges are pairs of chunks");
      for (std::size_t i = 0; i + 1 < ends.size(); i += 2) schedule.edges.push_back({ends[i], ends[i + 1]});
      has_edges = true;
    } else if (first == "rank") {
      words >> word;
      expect(word == text(schedule.ranks(), ":"), "expected 'rank ", schedule.ranks(), ": STEP STEP ...', found 'rank ",
             word, "'");
      std::string steps;
      std::getline(words, steps);
      try {
        schedule.programs.push_back(parse_program(steps));
      } catch (const ConfigError& e) {
        expect(false, e.what());
      }
    } else {
      expect(false, "unknown word '", first, "'");
    }
  }
  require<ConfigError>(schedule.microbatches > 0, "schedule: no line 'schedule NAME microbatches N' with N > 0");
  require<ConfigError>(!schedule.rank_of_chunk.empty(), "schedule: no line 'chunks on ranks R R ...'");
  require<ConfigError>(!schedule.programs.empty(), "schedule: no line 'rank 0: STEP STEP ...'");
  if (!has_edges) schedule.edges = chain(schedule.chunks());
  return schedule;
}

}  // namespace trireme::schedule
