#pragma once
// How programs of this project end.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <unistd.h>

namespace trireme {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHasSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kHasSanitizer = true;
#else
inline constexpr bool kHasSanitizer = false;
#endif
#else
inline constexpr bool kHasSanitizer = false;
#endif

/// At the end of main(). Writes what C and C++ streams hold, and skips the destructors of static objects: libtorch
/// takes a tenth of a second to unregister its operators one by one. A sanitizer reports at the exit, and gets it.
[[noreturn]] inline void end_process(int code) {
  std::cout.flush();
  std::cerr.flush();
  std::clog.flush();
  std::fflush(nullptr);
  if constexpr (kHasSanitizer) std::exit(code);
  ::_exit(code);
}

}  // namespace trireme
