#pragma once
// Conformance tests for any Group backend: all operations, dtypes and sizes, checked against plain arithmetic.
// tests/launchers/rank_program.cpp also runs them with processes and on GPUs.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.hpp"
#include "trireme/comm/group.hpp"

namespace trireme {

class Conformance {
 public:
  Conformance(Group& group, at::Device device) : g_(group), device_(device), n_(group.size()), me_(group.rank()) {}

  /// Throws at the first wrong result; returns the number of checks.
  int run(const std::vector<std::int64_t>& sizes = {0, 1, 37, (1 << 20) + 3}) {
    for (at::ScalarType dtype :
         {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte, at::kBool})
      for (std::int64_t size : sizes) {
        dtype_ = dtype;
        whole_ = size;
        part_ = (size + n_ - 1) / n_;
        make_values();
        reductions();
        movements();
        messages();
      }
    refusals();
    rounding(at::kBFloat16, 1.0 / 256);
    rounding(at::kHalf, 1.0 / 2048);
    in_flight_together();
    g_.barrier().wait();
    g_.replay().wait();
    return checked_;
  }

 private:
  /// Element i of rank r is (7 i + 3 r) mod 5 + 1: small integers, so that sums are exact in every dtype and order. The
  /// period is 5, and the values of rank r are those of rank 0 from 4 r on: all are views of one tensor.
  at::Tensor values(int r, std::int64_t n, std::int64_t from = 0) const {
    return pattern_.narrow(0, (from + 4 * r) % 5, n);
  }
  at::Tensor repeated(const at::Tensor& five) const { return five.repeat({longest() / 5 + 2}); }
  std::int64_t longest() const { return std::max(whole_, part_ * n_) + 2000 * n_; }

  void make_values() {
    at::Tensor five = at::arange(5, at::TensorOptions(at::kLong).device(device_)) * 7 % 5 + 1;
    if (dtype_ == at::kHalf) five = five * n_;  // a mean in float16 divides first: by n without rounding
    pattern_ = repeated(dtype_ == at::kBool ? (five % 2).to(at::kBool) : five.to(dtype_));
    for (Reduce kind : kinds()) {
      at::Tensor result = values(0, 5);
      for (int r = 1; r < n_; ++r) {
        const at::Tensor next = values(r, 5);
        result = kind == Reduce::max   ? at::maximum(result, next)
                 : kind == Reduce::min ? at::minimum(result, next)
                                       : result + next;
      }
      reduced_[static_cast<std::size_t>(kind)] = repeated(kind == Reduce::avg ? result.div(n_) : result);
    }
  }
  at::Tensor empty(std::int64_t n) const { return at::empty({n}, at::TensorOptions(dtype_).device(device_)); }

  void expect(const at::Tensor& got, const at::Tensor& want, const char* what) {
    ++checked_;
    if (got.scalar_type() == want.scalar_type() && at::equal(got.reshape(-1), want.reshape(-1))) return;
    throw std::runtime_error(text(what, " of ", dtype_name(dtype_), ", ", whole_, " elements, rank ", me_, " of ",
                                  g_.str(), ": got ", got.reshape(-1).slice(0, 0, 8), ", want ",
                                  want.reshape(-1).slice(0, 0, 8)));
  }

  /// The expected reduction over ranks of elements from..from+n.
  at::Tensor reduced(Reduce kind, std::int64_t n, std::int64_t from = 0) const {
    return reduced_[static_cast<std::size_t>(kind)].narrow(0, from % 5, n);
  }

  std::vector<Reduce> kinds() const {
    if (dtype_ == at::kBool) return {Reduce::max, Reduce::min};
    if (!at::isFloatingType(dtype_)) return {Reduce::sum, Reduce::max, Reduce::min};
    return {Reduce::sum, Reduce::max, Reduce::min, Reduce::avg};
  }

  void reductions() {
    const int root = n_ - 1;
    for (Reduce kind : kinds()) {
      const at::Tensor x = values(me_, whole_), copy = x.clone();
      expect(g_.all_reduce(x, kind).wait(), reduced(kind, whole_), "all_reduce");
      expect(x, copy, "the input of all_reduce");
      const at::Tensor in_place = x.clone();
      g_.all_reduce_(in_place, kind).wait();
      expect(in_place, reduced(kind, whole_), "all_reduce_");
      const at::Tensor at_root = g_.reduce(x, root, kind).wait();
      if (me_ == root) expect(at_root, reduced(kind, whole_), "reduce");
      if (me_ != root && at_root.defined())
        throw std::runtime_error("reduce gave a result to a rank that is not the root");
      expect(g_.reduce_scatter(values(me_, part_ * n_), kind).wait(), reduced(kind, part_, part_ * me_),
             "reduce_scatter");
    }
  }

  at::Tensor everybodys(std::int64_t n) const {
    std::vector<at::Tensor> parts;
    for (int r = 0; r < n_; ++r) parts.push_back(values(r, n));
    return at::cat(parts);
  }

  void movements() {
    const at::Tensor x = values(me_, whole_);
    expect(g_.all_gather(values(me_, part_)).wait(), everybodys(part_), "all_gather");
    for (int root = 0; root < n_; ++root) {
      at::Tensor b = me_ == root ? x.clone() : empty(whole_).fill_(0);
      expect(g_.broadcast_(b, root).wait(), values(root, whole_), "broadcast");
    }
    const int root = n_ / 2;
    const at::Tensor gathered = g_.gather(values(me_, part_), root).wait();
    if (me_ == root) expect(gathered, everybodys(part_), "gather");
    const at::Tensor out = empty(part_);
    g_.scatter_into(out, me_ == root ? values(root, part_ * n_) : at::Tensor(), root).wait();
    expect(out, values(root, part_, part_ * me_), "scatter");

    std::vector<at::Tensor> even;
    for (int r = 0; r < n_; ++r) even.push_back(values(r, part_, part_ * me_));
    expect(g_.all_to_all(values(me_, part_ * n_)).wait(), at::cat(even), "all_to_all");
    uneven();
  }

  /// Rank a sends (a + b) % 3 parts to rank b: some receive nothing.
  void uneven() {
    const std::int64_t unit = std::min<std::int64_t>(part_, 1000);
    const auto rows = [unit](int a, int b) { return (a + b) % 3 * unit; };
    std::vector<std::int64_t> send, recv;
    std::vector<at::Tensor> want;
    std::int64_t sent = 0;
    for (int r = 0; r < n_; ++r) {
      send.push_back(rows(me_, r));
      recv.push_back(rows(r, me_));
      sent += send.back();
      std::int64_t before = 0;
      for (int b = 0; b < me_; ++b) before += rows(r, b);
      want.push_back(values(r, rows(r, me_), before));
    }
    expect(g_.all_to_all(values(me_, sent), send, recv).wait(), at::cat(want), "uneven all_to_all");
  }

  void messages() {
    if (n_ == 1) return;
    const int next = (me_ + 1) % n_, last = (me_ + n_ - 1) % n_;
    // In turn: rank 0 sends first, to avoid a deadlock.
    at::Tensor got = empty(whole_);
    if (me_ == 0) g_.send(values(me_, whole_), next).wait();
    g_.recv_(got, last).wait();
    if (me_ != 0) g_.send(values(me_, whole_), next).wait();
    expect(got, values(last, whole_), "send and recv");
    // All at once, in both directions.
    at::Tensor from_last = empty(whole_), from_next = empty(part_);
    g_.batch({Message::send(values(me_, whole_), next), Message::recv(from_last, last),
              Message::send(values(me_, part_), last), Message::recv(from_next, next)})
        .wait();
    expect(from_last, values(last, whole_), "batch from the last");
    expect(from_next, values(next, part_), "batch from the next");
  }

  template <class Call>
  void expect_refused(Call call, const std::string& words) {
    ++checked_;
    try {
      call().wait();
    } catch (const Error& e) {
      if (std::string(e.what()).find(words) != std::string::npos) return;
      throw std::runtime_error(text("refused, but without \"", words, "\": ", e.what()));
    }
    throw std::runtime_error(text("not refused: ", words));
  }

  void refusals() {
    const at::TensorOptions on = at::TensorOptions(at::kFloat).device(device_);
    const at::Tensor flags = at::ones({4}, on.dtype(at::kBool)), counts = at::ones({4}, on.dtype(at::kLong));
    expect_refused([&] { return g_.all_reduce(flags); }, "sum of bool");
    expect_refused([&] { return g_.all_reduce(flags, Reduce::avg); }, "avg of bool");
    expect_refused([&] { return g_.all_reduce(counts, Reduce::avg); }, "avg of i64");
    expect_refused([&] { return g_.all_reduce_(at::ones({4, 4}, on).t()); }, "not contiguous");
    expect_refused([&] { return g_.all_reduce_(at::Tensor()); }, "undefined");
    expect_refused([&] { return g_.all_reduce_(at::ones({4}, on.dtype(at::kComplexFloat))); }, "dtype");
    expect_refused([&] { return g_.broadcast_(at::ones({4}, on), n_); }, "root");
    expect_refused([&] { return g_.send(at::ones({4}, on), me_); }, "itself");
    expect_refused([&] { return g_.all_gather_into(at::empty({n_ * 4 + 1}, on), at::ones({4}, on)); }, "must be");
    if (n_ == 1) return;
    const at::Tensor buffer = at::zeros({n_ * 4}, on);
    expect_refused([&] { return g_.all_gather_into(buffer, buffer.narrow(0, (me_ + 1) % n_ * 4, 4)); }, "share memory");
    expect_refused([&] { return g_.all_to_all(at::ones({n_ + 1}, on)); }, "equal parts");
  }

  /// Sums that are not exact: each addition may round once, relative to the sum of magnitudes so far.
  void rounding(at::ScalarType dtype, double epsilon) {
    dtype_ = dtype;
    whole_ = 4097;
    const auto random = [&](int r) {
      const at::Tensor i = at::arange(whole_, at::TensorOptions(at::kDouble).device(device_));
      return at::sin(i * (0.37 + r)).to(dtype);
    };
    at::Tensor sum = at::zeros({whole_}, at::TensorOptions(at::kDouble).device(device_)), magnitude = sum.clone();
    for (int r = 0; r < n_; ++r) {
      sum += random(r).to(at::kDouble);
      magnitude += random(r).to(at::kDouble).abs();
    }
    const at::Tensor got = g_.all_reduce(random(me_)).wait().to(at::kDouble);
    ++checked_;
    if (((got - sum).abs() > n_ * epsilon * magnitude).any().item<bool>())
      throw std::runtime_error(
          text("the sum of ", n_, " x ", dtype_name(dtype), " is off by more than n x ", epsilon, " x sum |x|"));
  }

  void in_flight_together() {
    dtype_ = at::kFloat;
    whole_ = 1000;
    part_ = 10;
    make_values();
    Pending a = g_.all_reduce(values(me_, whole_));
    Pending b = g_.all_gather(values(me_, 10));
    Pending c = g_.all_reduce(values(me_, whole_), Reduce::max);
    expect(std::move(c).wait(), reduced(Reduce::max, whole_), "the third of three in flight");
    expect(std::move(a).wait(), reduced(Reduce::sum, whole_), "the first of three in flight");
    expect(std::move(b).wait(), everybodys(10), "the second of three in flight");
  }

  Group& g_;
  const at::Device device_;
  const int n_, me_;
  at::ScalarType dtype_ = at::kFloat;
  std::int64_t whole_ = 0, part_ = 0;
  at::Tensor pattern_;
  std::array<at::Tensor, 4> reduced_;  // by kind of reduction
  int checked_ = 0;
};

}  // namespace trireme
