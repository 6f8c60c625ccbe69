// Decimal numbers of few digits.
#pragma once

#include <array>
#include <cstdint>

namespace danling::inline v0::formats {

/// Reads `-12.5e3` where digits and power of ten are doubles, so that one operation rounds as it must (Clinger 1990).
/// False for all else, also for numbers that only have more digits.
inline bool simple_decimal(const char* at, const char* end, double& value) {
  static constexpr std::array<double, 23> powers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const bool negative = at < end && *at == '-';
  at += negative ? 1 : 0;
  std::uint64_t digits = 0;
  const auto read_digits = [&] {
    const char* const begin = at;
    for (; at < end && static_cast<unsigned char>(*at - '0') < 10; ++at) {
      digits = digits * 10 + static_cast<unsigned char>(*at - '0');
    }
    return at - begin;
  };
  std::int64_t count = read_digits();
  std::int64_t power = 0;
  if (count == 0) {
    return false;
  }
  if (at < end && *at == '.') {
    ++at;
    power = -read_digits();
    if (power == 0) {
      return false;
    }
    count -= power;
  }
  if (at < end && (*at == 'e' || *at == 'E')) {
    ++at;
    const bool below = at < end && *at == '-';
    at += at < end && (*at == '-' || *at == '+') ? 1 : 0;
    const char* const begin = at;
    std::int64_t exponent = 0;
    for (; at < end && at - begin < 4 && static_cast<unsigned char>(*at - '0') < 10; ++at) {
      exponent = exponent * 10 + (*at - '0');
    }
    if (at == begin) {
      return false;
    }
    power += below ? -exponent : exponent;
  }
  // 19 digits do not overflow.
  if (at != end || count > 19 || digits > std::uint64_t{1} << 53 || power < -22 || power > 22) {
    return false;
  }
  const auto whole = static_cast<double>(digits);
  value =
      power < 0 ? whole / powers[static_cast<std::size_t>(-power)] : whole * powers[static_cast<std::size_t>(power)];
  value = negative ? -value : value;
  return true;
}

}  // namespace danling::inline v0::formats
