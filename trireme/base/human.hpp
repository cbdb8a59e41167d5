#pragma once
// Human-readable numbers: few digits, with a suitable unit. Locale-independent.
#include <cstdint>
#include <string>

namespace trireme {

/// 918656 -> "918,656"
std::string thousands(std::int64_t value);

/// Six significant digits, no trailing zeros, like printf's %.6g: 2.3, 1e-05, nan.
std::string human_number(double value);

/// nanotron's human_format with B for 1e9: three significant digits, no trailing zeros, then K M B T P E. Rounded
/// before the unit is chosen: 999,999 is "1M", never "1000K". Below 1 there is no unit: "0.0003".
std::string human_count(double value);

/// Three significant digits in units of 1024: "43.0 MiB"; whole bytes below 1 KiB; four digits from 1000 to 1023.
std::string human_bytes(double value);

/// Three significant digits, no trailing zeros, in ns, µs, ms or s: "12 ms", "1.24 s"; from one minute on as h:mm:ss,
/// with any number of hours: "0:01:07", "49:00:00".
std::string human_seconds(double value);

}  // namespace trireme
