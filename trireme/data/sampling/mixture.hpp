#pragma once
// In which order a run turns to its sources, by weight, for any draw without walking there.
#include <cstdint>
#include <span>
#include <vector>

#include "trireme/base/philox.hpp"

namespace trireme::data {

/// Note [Mixture by blocks]: draws come in blocks, each with a whole number of draws of every source (its quota) in the
/// same arrangement. The block's length, 1,024 to 65,536, is the one that is fairest to the source it treats worst:
/// exact, where weights of up to four decimals sum to 1; otherwise every source has its share to within a factor of
/// 1 +- 1/(65,536 w), w being the smallest share. A source with less than one draw in 65,536 is refused.
///
/// Inside the block the draws of each source are spread evenly, each at random in an equal part of the block. So after
/// any number j of draws, of n sources, a source with quota q in a block of b has had j q/b draws to within 1 + n q/b:
/// every step sees the mixture, and no period of the arrangement falls together with the ranks.
class Mixture {
 public:
  /// ConfigError where a weight is too small. The weights are above 0; their order is the sources' numbers.
  Mixture(std::span<const double> weights, const RandomStream& stream);

  struct Draw {
    std::size_t source;
    std::int64_t index;  // how many draws of this source came before
  };
  Draw draw(std::int64_t j) const;

  /// How many of the first `draws` are of that source.
  std::int64_t count(std::size_t source, std::int64_t draws) const;

  std::int64_t block() const { return static_cast<std::int64_t>(slots_.size()); }
  std::int64_t quota(std::size_t source) const { return quotas_[source]; }

  static constexpr std::int64_t kMinBlock = 1024, kMaxBlock = 65'536;

 private:
  struct Slot {
    std::uint32_t source, index;
  };
  std::vector<std::int64_t> quotas_;
  std::vector<Slot> slots_;  // the draws of a block
};

}  // namespace trireme::data
