#include "trireme/config/settings/nearest.hpp"

#include <algorithm>
#include <limits>

#include "trireme/base/edit_distance.hpp"

namespace trireme::config {
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
