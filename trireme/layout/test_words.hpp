#pragma once
// Words that the tests of this folder share.
#include <functional>
#include <string>

#include <rapidcheck.h>

namespace trireme {

/// The message of the error `E` that `body` throws.
template <class E>
std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

/// Any number from `low` to `high`, both included, equally likely. (RapidCheck's own inRange keeps near `low`.)
inline int pick(int low, int high) { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high + 1)); }

inline bool toss() { return pick(0, 1) == 1; }

}  // namespace trireme
