#pragma once
// Helpers for tests in all folders.
#include <functional>
#include <string>

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

}  // namespace trireme
