#include "trireme/config/read/nearest.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace trireme::config {
namespace {

/// Number of letters to insert, delete, replace or swap with their neighbour.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before_last, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(const std::string& wrong, const std::vector<std::string>& known) {
  std::string best;
  double best_score = std::numeric_limits<double>::infinity();
  const std::string word = wrong.substr(0, 64);
  for (const std::string& candidate : known) {
    if (word.empty() || candidate.empty()) continue;
    const auto distance = static_cast<double>(edit_distance(word, candidate));
    // A prefix of at least three letters is near, however long the rest is; the shortest such candidate wins. A word
    // that extends a known one scores worse: it may also be another word with one wrong letter.
    double score = distance;
    if (word.size() >= 3 && candidate.starts_with(word)) score = std::min(score, 0.5 + 1e-3 * distance);
    if (candidate.size() >= 3 && word.starts_with(candidate)) score = std::min(score, 1.5 + 1e-3 * distance);
    const double limit = static_cast<double>(std::max(word.size(), candidate.size())) / 2;
    if (score <= limit && score < best_score) {
      best = candidate;
      best_score = score;
    }
  }
  return best;
}

}  // namespace trireme::config
