// Fast parsing of short decimal numbers.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace danling::inline v0::formats {

/// Parses the last `count` (1 to 8) bytes before `end` as decimal digits, all at once, on little-endian machines; all 8
/// bytes must be readable. Returns false if one is not a digit.
inline bool last_digits(const char* end, std::int64_t count, std::uint64_t& value) {
  constexpr std::uint64_t zeros = 0x3030303030303030;
  std::uint64_t bytes = 0;
  std::memcpy(&bytes, end - 8, sizeof(bytes));
  const std::uint64_t wanted = ~std::uint64_t{0} << (8 * (8 - count));
  bytes = (bytes & wanted) | (zeros & ~wanted);
  constexpr std::uint64_t high = 0xf0f0f0f0f0f0f0f0;
  if (((bytes & high) | (((bytes + 0x0606060606060606) & high) >> 4)) != 0x3333333333333333) {
    return false;
  }
  // Combines digits into numbers of two, then four, then eight digits.
  bytes -= zeros;
  bytes = bytes * 10 + (bytes >> 8);
  constexpr std::uint64_t pairs = 0x000000ff000000ff;
  value = ((bytes & pairs) * 0x000f424000000064 + ((bytes >> 16) & pairs) * 0x0000271000000001) >> 32;
  return true;
}

/// Parses a number such as `-12.5e3` if its digits and its power of ten are exact doubles, so one operation rounds
/// correctly (Clinger 1990). Returns false otherwise, also for a valid number with more digits.
inline bool simple_decimal(const char* at, const char* end, double& value) {
  static constexpr std::array<double, 23> powers = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  const char* const field = at;
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
    std::uint64_t fraction = 0;
    if (const std::int64_t left = end - at; std::endian::native == std::endian::little && left > 0 && left <= 8 &&
                                            end - field >= 8 && last_digits(end, left, fraction)) {
      digits = digits * static_cast<std::uint64_t>(powers[static_cast<std::size_t>(left)]) + fraction;
      at = end;
      power = -left;
    } else {
      power = -read_digits();
    }
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
  // Up to 19 digits fit uint64.
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
