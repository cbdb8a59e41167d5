#pragma once
// A rank without its peers, for dry runs: calls return at once, with this rank's own data in place of that of others.
#include <memory>

#include "trireme/comm/world.hpp"

namespace trireme {

/// Sums are this rank's summand, gathered parts are copies of its own, received messages are zero. Nothing is compared
/// between ranks. What a rank computes and allocates is real; values are not.
class FakeWorld final : public World {
 public:
  FakeWorld(int rank, int size);

 protected:
  std::unique_ptr<Group> connect(Membership members) override;
};

}  // namespace trireme
