#pragma once
// A small SIMD library: several vector registers as one value, and the math functions of the kernels. Only for the .cpp
// files of this folder.
//
// Not at::vec: outside libtorch's own build its exp and erf call libm once per element (or are approximations meant for
// bf16), and on x86 it has no vectors at all unless a file is compiled for a CPU that may not be available. Here the
// compiler's vector extensions are used: NEON on aarch64, SSE2 in a plain x86-64 build, and wider ones if the whole
// build is compiled for them (-march=x86-64-v3).
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace trireme::kernels::detail {

/// The compute type for numbers stored as S: fp32 for bf16 and f16, else S itself.
template <class S>
using Wide = std::conditional_t<std::is_same_v<S, double>, double, float>;

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif

template <class T>
struct RegisterOf {
  using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  typedef T Values __attribute__((vector_size(kRegisterBytes)));
  typedef Bits Integers __attribute__((vector_size(kRegisterBytes)));
};
template <class T>
using Register = typename RegisterOf<T>::Values;
template <class T>
using IntRegister = typename RegisterOf<T>::Integers;

template <class T>
inline Register<T> broadcast(T x) {
  return Register<T>{} + x;
}

/// Four registers: enough independent sums to keep two FMA pipes busy.
template <class T>
struct Lanes {
  static constexpr int kRegister = kRegisterBytes / static_cast<int>(sizeof(T));
  static constexpr int kCount = 4 * kRegister;
  using R = Register<T>;

  Lanes() : Lanes(T{0}) {}
  Lanes(T x) : a(broadcast(x)), b(a), c(a), d(a) {}  // implicit: scalars and lanes mix in formulas
  Lanes(R a_, R b_, R c_, R d_) : a(a_), b(b_), c(c_), d(d_) {}

  friend Lanes operator+(Lanes x, Lanes y) { return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d}; }
  friend Lanes operator-(Lanes x, Lanes y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
  friend Lanes operator*(Lanes x, Lanes y) { return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d}; }
  friend Lanes operator/(Lanes x, Lanes y) { return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d}; }
  Lanes operator-() const { return {-a, -b, -c, -d}; }
  Lanes& operator+=(Lanes y) { return *this = *this + y; }

  /// Applies f to each register.
  template <class F>
  Lanes map(const F& f) const {
    return {f(a), f(b), f(c), f(d)};
  }

  R a, b, c, d;
};

// --- memory ---------------------------------------------------------------------------------------------------------

/// The number of valid lanes of a step: all (known at compile time), or the first few at the end of a row.
struct AllLanes {};
struct FewLanes {
  std::int64_t count;
};

template <class To, class From>
inline To bits_of(const From& x) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &x, sizeof to);
  return to;
}

template <class T>
inline Register<T> load_register(const T* p) {
  Register<T> x;
  std::memcpy(&x, p, sizeof x);
  return x;
}
template <class T>
inline void store_register(T* p, Register<T> x) {
  std::memcpy(p, &x, sizeof x);
}

typedef std::uint16_t Halves __attribute__((vector_size(kRegisterBytes / 2)));
typedef std::uint32_t Words __attribute__((vector_size(kRegisterBytes)));

inline Register<float> load_register(const c10::BFloat16* p) {
  Halves x;
  std::memcpy(&x, p, sizeof x);
  return bits_of<Register<float>>(__builtin_convertvector(x, Words) << 16);
}
inline void store_register(c10::BFloat16* p, Register<float> x) {
  const Words bits = bits_of<Words>(x);
  const Words even = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;  // to nearest, ties to even
  const Words chosen = x == x ? even : (Words{} + 0x7FC0);        // the sum above would turn some NaNs into infinity
  const Halves low = __builtin_convertvector(chosen, Halves);
  std::memcpy(p, &low, sizeof low);
}

inline Register<float> load_register(const c10::Half* p) {
  Register<float> x{};
  for (int i = 0; i < Lanes<float>::kRegister; ++i) x[i] = static_cast<float>(p[i]);
  return x;
}
inline void store_register(c10::Half* p, Register<float> x) {
  for (int i = 0; i < Lanes<float>::kRegister; ++i) p[i] = static_cast<c10::Half>(x[i]);
}

template <class S>
inline Lanes<Wide<S>> load(const S* p, AllLanes) {
  constexpr int n = Lanes<Wide<S>>::kRegister;
  return {load_register(p), load_register(p + n), load_register(p + 2 * n), load_register(p + 3 * n)};
}
/// Zero beyond the count.
template <class S>
inline Lanes<Wide<S>> load(const S* p, FewLanes few) {
  Wide<S> padded[Lanes<Wide<S>>::kCount] = {};
  for (std::int64_t i = 0; i < few.count; ++i) padded[i] = static_cast<Wide<S>>(p[i]);
  return load(padded, AllLanes{});
}

template <class S>
inline void store(S* p, Lanes<Wide<S>> x, AllLanes) {
  constexpr int n = Lanes<Wide<S>>::kRegister;
  store_register(p, x.a);
  store_register(p + n, x.b);
  store_register(p + 2 * n, x.c);
  store_register(p + 3 * n, x.d);
}
template <class S>
inline void store(S* p, Lanes<Wide<S>> x, FewLanes few) {
  S padded[Lanes<Wide<S>>::kCount];
  store(padded, x, AllLanes{});
  std::copy_n(padded, few.count, p);
}

/// f(i, which) for steps of Lanes<T> that cover 0 ... n - 1. Mark the calling function [[gnu::flatten]]: sums in the
/// lambda's captures stay in registers only if everything is inlined.
template <class T, class F>
inline void for_lanes(std::int64_t n, const F& f) {
  constexpr std::int64_t kStep = Lanes<T>::kCount;
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) f(i, AllLanes{});
  if (i < n) f(i, FewLanes{n - i});
}

// --- horizontal reductions ------------------------------------------------------------------------------------------

/// Always in the same order.
template <class T>
inline T sum(Lanes<T> x) {
  const Register<T> four = (x.a + x.b) + (x.c + x.d);
  T total = four[0];
  for (int i = 1; i < Lanes<T>::kRegister; ++i) total += four[i];
  return total;
}

template <class T>
inline Lanes<T> max(Lanes<T> x, Lanes<T> y) {
  return {x.a > y.a ? x.a : y.a, x.b > y.b ? x.b : y.b, x.c > y.c ? x.c : y.c, x.d > y.d ? x.d : y.d};
}
template <class T>
inline T largest(Lanes<T> x) {
  const Lanes<T> pairs = max(x, Lanes<T>(x.c, x.d, x.c, x.d));
  const Register<T> four = pairs.a > pairs.b ? pairs.a : pairs.b;
  T most = four[0];
  for (int i = 1; i < Lanes<T>::kRegister; ++i) most = std::max(most, four[i]);
  return most;
}

/// Keeps the first lanes and sets the rest to `other`: masks the end of a row in a sum or a maximum.
template <class T>
inline Lanes<T> only(Lanes<T> x, AllLanes, T) {
  return x;
}
template <class T>
inline Lanes<T> only(Lanes<T> x, FewLanes few, T other) {
  T padded[Lanes<T>::kCount];
  store(padded, x, AllLanes{});
  std::fill(padded + few.count, padded + Lanes<T>::kCount, other);
  return load(padded, AllLanes{});
}

// --- functions ------------------------------------------------------------------------------------------------------

/// exp(x) = 2^n exp(r) with integer n and |r| <= ln 2 / 2. f32 to 1 ulp, f64 to 2e-16; correct for subnormal results,
/// overflow, infinities and NaN.
inline Register<float> exp_register(Register<float> x) {
  const Register<float> low = broadcast(-104.0F), high = broadcast(89.0F);
  x = x < low ? low : x;  // NaN stays
  x = x > high ? high : x;
  const float shift = 0x1.8p23F;  // adding it rounds to an integer and leaves n in the low bits
  const Register<float> shifted = x * 0x1.715476p+0F + shift;
  const Register<float> n = shifted - shift;
  Register<float> r = x - n * 0x1.62e4p-1F;  // 15 bits: the product with n is exact
  r = r - n * 0x1.7f7d1cp-20F;
  // 1 + r + r^2 q(r), relative error 3e-9 (minimax, fitted for this file)
  Register<float> q = r * 0x1.6a2434p-10F + 0x1.1239e2p-7F;
  q = q * r + 0x1.5558f2p-5F;
  q = q * r + 0x1.555492p-3F;
  q = q * r + 0x1.fffffcp-2F;
  const Register<float> e = (q * r * r + r) + 1.0F;
  // 2^n as two factors, so that neither overflows the exponent range.
  const IntRegister<float> whole = bits_of<IntRegister<float>>(shifted) - 0x4B400000;
  const IntRegister<float> half = whole >> 1;
  return e * bits_of<Register<float>>((half + 127) << 23) * bits_of<Register<float>>((whole - half + 127) << 23);
}
inline Register<double> exp_register(Register<double> x) {
  const Register<double> low = broadcast(-746.0), high = broadcast(710.0);
  x = x < low ? low : x;
  x = x > high ? high : x;
  const double shift = 0x1.8p52;
  const Register<double> shifted = x * 0x1.71547652b82fep+0 + shift;
  const Register<double> n = shifted - shift;
  Register<double> r = x - n * 0x1.62e42fefap-1;  // 36 bits
  r = r - n * 0x1.cf79abc9e3b39p-40;
  // Taylor series to r^13: the truncation error is below 4e-18.
  Register<double> q = r * (1 / 6227020800.0) + 1 / 479001600.0;
  q = q * r + 1 / 39916800.0;
  q = q * r + 1 / 3628800.0;
  q = q * r + 1 / 362880.0;
  q = q * r + 1 / 40320.0;
  q = q * r + 1 / 5040.0;
  q = q * r + 1 / 720.0;
  q = q * r + 1 / 120.0;
  q = q * r + 1 / 24.0;
  q = q * r + 1 / 6.0;
  q = q * r + 0.5;
  const Register<double> e = (q * r * r + r) + 1.0;
  const IntRegister<double> whole = bits_of<IntRegister<double>>(shifted) - 0x4338000000000000;
  const IntRegister<double> half = whole >> 1;
  return e * bits_of<Register<double>>((half + 1023) << 52) * bits_of<Register<double>>((whole - half + 1023) << 52);
}

template <class T>
inline Lanes<T> exp(Lanes<T> x) {
  return x.map([](Register<T> r) { return exp_register(r); });
}

/// 1 / (1 + exp(-x)).
template <class T>
inline Lanes<T> sigmoid(Lanes<T> x) {
  return Lanes<T>(T{1}) / (exp(-x) + T{1});
}

}  // namespace trireme::kernels::detail
