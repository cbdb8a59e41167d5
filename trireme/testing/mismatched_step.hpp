#pragma once
// A step of eleven calls on two groups in which one rank can be made to do one thing wrong. For tests of the mismatch
// checks, with threads here and with processes in tests/launchers.
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/comm/mesh.hpp"

namespace trireme {

inline const std::vector<std::string>& mismatch_kinds() {
  static const std::vector<std::string> kinds{"shape", "dtype", "op", "group", "order", "skip", "duplicate"};
  return kinds;
}

class MismatchedStep {
 public:
  static constexpr int kPlaces = 8;  // number of calls that can go wrong; each has two more after it

  /// Empty `kind`: nothing goes wrong.
  MismatchedStep(Mesh& mesh, std::string kind, int who, int at)
      : mesh_(mesh), kind_(mesh.rank() == who ? std::move(kind) : ""), at_(at) {}

  void run() {
    for (int i = 0; i < kPlaces + 3; ++i) {
      const bool here = i == at_;
      if (here && kind_ == "skip") continue;
      if (here && kind_ == "duplicate") call(i, "");
      // Swapped with the next one on the same group.
      const int number = kind_ != "order" ? i : here ? i + 2 : i == at_ + 2 ? at_ : i;
      call(number, here ? kind_ : "");
    }
    mesh_.end_step();
  }

  /// Whether the input of the last call is unmodified: a rejected call must not have moved any data.
  bool untouched() const { return at::equal(given_, before_); }

 private:
  void call(int i, const std::string& change) {
    mesh_.tag({1, "backward", i, kPlaces + 3});
    Group& group = mesh_.group((i % 2 == 0) != (change == "group") ? Axis::tp : Axis::dp);
    given_ = at::full({change == "shape" ? 128 : 64}, mesh_.rank() + 1, change == "dtype" ? at::kInt : at::kFloat);
    before_ = given_.clone();
    const int kind = (i / 2 + (change == "op" ? 1 : 0)) % 4;
    if (kind == 0) group.all_reduce_(given_).wait();
    if (kind == 1) group.all_gather(given_).wait();
    if (kind == 2) group.reduce_scatter(given_).wait();
    if (kind == 3) group.broadcast_(given_, 0).wait();
    before_ = given_.clone();
  }

  Mesh& mesh_;
  const std::string kind_;
  const int at_;
  at::Tensor given_ = at::zeros({1}), before_ = at::zeros({1});
};

}  // namespace trireme
