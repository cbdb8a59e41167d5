#include "trireme/workloads/text_data.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>

#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/workloads/shuffle.hpp"

namespace trireme::workloads {
namespace {

void check(const TextDataOptions& options) {
  require<ConfigError>(options.samples > 0, "text data: samples = ", options.samples, ", at least one is needed");
  require<ConfigError>(options.classes > 1, "text data: classes = ", options.classes, ", at least two are needed");
  require<ConfigError>(topic_words(options) > 0, "text data: a vocabulary of ", options.vocabulary,
                       " words is too small for ", options.classes, " topics\n  fix: at least ",
                       2 * options.classes + 1);
  require<ConfigError>(options.length > 4 * options.classes, "text data: length = ", options.length,
                       " is too short for words of ", options.classes, " topics\n  fix: at least ",
                       4 * options.classes + 1);
}

/// How many words a text of class `label` has of each topic: together a quarter to half of the text.
std::vector<std::int64_t> words_per_topic(const TextDataOptions& options, std::int64_t label,
                                          const RandomStream& random, std::uint64_t& drawn) {
  const std::int64_t least = (options.length + 3) / 4, most = options.length / 2;
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random.below(drawn++, static_cast<std::uint64_t>(n)));
  };
  const std::int64_t total = least + below(most - least + 1);
  // The others have at most as many as leave their own topic one word more than each of them.
  std::vector<std::int64_t> out(static_cast<std::size_t>(options.classes), 0);
  std::int64_t own = total;
  for (std::int64_t topic = 0; topic < options.classes; ++topic)
    if (topic != label) {
      const std::int64_t words = below((total - 1) / options.classes + 1);
      out[static_cast<std::size_t>(topic)] = words;
      own -= words;
    }
  out[static_cast<std::size_t>(label)] = own;
  return out;
}

}  // namespace

std::int64_t topic_words(const TextDataOptions& options) {
  return std::min<std::int64_t>((options.vocabulary - 1) / (2 * options.classes), 100);
}

LabelledText text_data(const TextDataOptions& options, std::uint64_t seed, const std::string& purpose) {
  check(options);
  const std::int64_t topic_size = topic_words(options), others = 1 + options.classes * topic_size;
  LabelledText out{at::empty({options.samples, options.length}, at::kLong), at::empty({options.samples}, at::kLong)};
  auto tokens = out.x.accessor<std::int64_t, 2>();
  auto labels = out.y.accessor<std::int64_t, 1>();
  const std::vector<std::int64_t> order = random_order(options.samples, seed, text("text order ", purpose));
  for (std::int64_t i = 0; i < options.samples; ++i) {
    const std::int64_t row = order[static_cast<std::size_t>(i)], label = i % options.classes;
    const std::string name = text("text ", purpose, " ", i);
    const RandomStream random(seed, name);
    std::uint64_t drawn = 0;
    const auto word = [&](std::int64_t first, std::int64_t count) {
      return first + static_cast<std::int64_t>(random.below(drawn++, static_cast<std::uint64_t>(count)));
    };

    std::vector<std::int64_t> words;
    const std::vector<std::int64_t> counts = words_per_topic(options, label, random, drawn);
    for (std::int64_t topic = 0; topic < options.classes; ++topic)
      for (std::int64_t n = counts[static_cast<std::size_t>(topic)]; n > 0; --n)
        words.push_back(word(1 + topic * topic_size, topic_size));
    while (std::ssize(words) < options.length - 1) words.push_back(word(others, options.vocabulary - others));

    labels[row] = label;
    tokens[row][0] = 0;
    const std::vector<std::int64_t> places = random_order(options.length - 1, seed, name + " order");
    for (std::int64_t n = 0; n < options.length - 1; ++n)
      tokens[row][1 + places[static_cast<std::size_t>(n)]] = words[static_cast<std::size_t>(n)];
  }
  return out;
}

}  // namespace trireme::workloads
