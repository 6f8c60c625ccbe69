#include "elements.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <variant>

#include <danling/core/format.hpp>

namespace danling_command {
namespace {

constexpr double quiet_nan = std::numeric_limits<double>::quiet_NaN();
constexpr double positive_infinity = std::numeric_limits<double>::infinity();

template <class T>
T load(const std::byte* from) {
  T out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

// The meaning of the largest exponent.
enum class Top { ieee, nan_only, minus_zero_is_nan };

// Decodes a number that consists of a sign, `exponent_bits` and `mantissa_bits`.
double small_float(unsigned bits, int exponent_bits, int mantissa_bits, int bias, Top top) {
  const unsigned mantissa_mask = (1U << mantissa_bits) - 1;
  const unsigned exponent_mask = (1U << exponent_bits) - 1;
  const unsigned mantissa = bits & mantissa_mask;
  const unsigned exponent = (bits >> mantissa_bits) & exponent_mask;
  const bool negative = (bits >> (mantissa_bits + exponent_bits)) != 0;
  if (top == Top::ieee && exponent == exponent_mask) {
    return mantissa != 0 ? quiet_nan : negative ? -positive_infinity : positive_infinity;
  }
  if (top == Top::nan_only && exponent == exponent_mask && mantissa == mantissa_mask) {
    return quiet_nan;
  }
  if (top == Top::minus_zero_is_nan && negative && exponent == 0 && mantissa == 0) {
    return quiet_nan;
  }
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                    : std::ldexp(mantissa + mantissa_mask + 1, static_cast<int>(exponent) - bias - mantissa_bits);
  return negative ? -magnitude : magnitude;
}

double half(const std::byte* from) { return small_float(load<std::uint16_t>(from), 5, 10, 15, Top::ieee); }

using Scalar = std::variant<double, std::int64_t, std::uint64_t, std::complex<double>>;

Scalar decode(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::float64:
      return load<double>(from);
    case DType::float32:
      return double{load<float>(from)};
    case DType::float16:
      return half(from);
    case DType::bfloat16:
      return double{std::bit_cast<float>(std::uint32_t{load<std::uint16_t>(from)} << 16)};
    case DType::float8_e4m3fn:
      return small_float(load<std::uint8_t>(from), 4, 3, 7, Top::nan_only);
    case DType::float8_e5m2:
      return small_float(load<std::uint8_t>(from), 5, 2, 15, Top::ieee);
    case DType::float8_e4m3fnuz:
      return small_float(load<std::uint8_t>(from), 4, 3, 8, Top::minus_zero_is_nan);
    case DType::float8_e5m2fnuz:
      return small_float(load<std::uint8_t>(from), 5, 2, 16, Top::minus_zero_is_nan);
    case DType::float8_e8m0fnu: {
      const auto exponent = load<std::uint8_t>(from);
      return exponent == 255 ? quiet_nan : std::ldexp(1.0, exponent - 127);
    }
    case DType::int64:
      return load<std::int64_t>(from);
    case DType::int32:
      return std::int64_t{load<std::int32_t>(from)};
    case DType::int16:
      return std::int64_t{load<std::int16_t>(from)};
    case DType::int8:
      return std::int64_t{load<std::int8_t>(from)};
    case DType::uint8:
    case DType::boolean:
      return std::uint64_t{load<std::uint8_t>(from)};
    case DType::uint16:
      return std::uint64_t{load<std::uint16_t>(from)};
    case DType::uint32:
      return std::uint64_t{load<std::uint32_t>(from)};
    case DType::uint64:
      return load<std::uint64_t>(from);
    case DType::complex32:
      return std::complex<double>(half(from), half(from + 2));
    case DType::complex64:
      return std::complex<double>(load<float>(from), load<float>(from + 4));
    case DType::complex128:
      return std::complex<double>(load<double>(from), load<double>(from + 8));
  }
  return quiet_nan;
}

// Compares as integers, since doubles cannot order all integers of 64 bits.
bool integer_less(const Scalar& a, const Scalar& b) {
  if (const auto* number = std::get_if<std::int64_t>(&a)) {
    return *number < std::get<std::int64_t>(b);
  }
  const auto* number = std::get_if<std::uint64_t>(&a);
  return number != nullptr && *number < std::get<std::uint64_t>(b);
}

std::complex<double> as_complex(const Scalar& value) {
  if (const auto* number = std::get_if<std::complex<double>>(&value)) {
    return *number;
  }
  return std::visit(
      [](auto number) -> std::complex<double> {
        if constexpr (std::is_arithmetic_v<decltype(number)>) {
          return static_cast<double>(number);
        } else {
          return number;
        }
      },
      value);
}

double real_distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0;
  }
  const double distance = std::abs(a - b);
  return std::isfinite(a) && std::isfinite(b) ? distance : positive_infinity;
}

// Formats types up to 4 bytes as float; as double they would show digits that the type does not have.
std::string real_text(double value, bool wide) {
  if (wide || !std::isfinite(value)) {
    return danling::to_text(value);
  }
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(value)).ptr;
  const std::string out(buffer, end);
  return out.find_first_of(".e") == std::string::npos ? out + ".0" : out;
}

}  // namespace

std::string element_text(DType dtype, const std::byte* element) {
  const Scalar value = decode(dtype, element);
  if (dtype == DType::boolean) {
    return std::get<std::uint64_t>(value) != 0 ? "true" : "false";
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return real_text(*number, dtype == DType::float64);
  }
  if (const auto* number = std::get_if<std::int64_t>(&value)) {
    return danling::to_text(*number);
  }
  if (const auto* number = std::get_if<std::uint64_t>(&value)) {
    return danling::to_text(*number);
  }
  const auto number = std::get<std::complex<double>>(value);
  const bool wide = dtype == DType::complex128;
  return danling::detail::concat(real_text(number.real(), wide), std::signbit(number.imag()) ? "" : "+",
                                 real_text(number.imag(), wide), "j");
}

double element_distance(DType a_type, const std::byte* a, DType b_type, const std::byte* b) {
  const Scalar left = decode(a_type, a);
  const Scalar right = decode(b_type, b);
  // Subtracts as integers, since doubles have too few digits for large integers.
  if (left.index() == right.index()) {
    if (const auto* number = std::get_if<std::int64_t>(&left)) {
      const auto other = std::get<std::int64_t>(right);
      return static_cast<double>(*number > other
                                     ? static_cast<std::uint64_t>(*number) - static_cast<std::uint64_t>(other)
                                     : static_cast<std::uint64_t>(other) - static_cast<std::uint64_t>(*number));
    }
    if (const auto* number = std::get_if<std::uint64_t>(&left)) {
      const auto other = std::get<std::uint64_t>(right);
      return static_cast<double>(*number > other ? *number - other : other - *number);
    }
  }
  const auto first = as_complex(left);
  const auto second = as_complex(right);
  return std::hypot(real_distance(first.real(), second.real()), real_distance(first.imag(), second.imag()));
}

void ElementStatistics::add(DType dtype, std::span<const std::byte> elements) {
  dtype_ = dtype;
  const std::size_t width = danling::formats::dtype_size(dtype);
  for (std::size_t at = 0; at < elements.size(); at += width) {
    const std::byte* element = elements.data() + at;
    const Scalar scalar = decode(dtype, element);
    const auto* complex = std::get_if<std::complex<double>>(&scalar);
    const double value = complex != nullptr ? std::abs(*complex) : as_complex(scalar).real();
    ++count_;
    if (!std::isfinite(value)) {
      ++non_finite_;
      continue;
    }
    const auto finite = static_cast<double>(count_ - non_finite_);
    mean_ += (value - mean_) / finite;
    const auto below = [&](const Extreme& other) {
      return value < other.value || (value == other.value && integer_less(scalar, decode(dtype, other.element.data())));
    };
    const auto above = [&](const Extreme& other) {
      return value > other.value || (value == other.value && integer_less(decode(dtype, other.element.data()), scalar));
    };
    if (finite == 1 || below(minimum_)) {
      minimum_.value = value;
      std::copy_n(element, width, minimum_.element.begin());
    }
    if (finite == 1 || above(maximum_)) {
      maximum_.value = value;
      std::copy_n(element, width, maximum_.element.begin());
    }
  }
}

std::string ElementStatistics::text(const Extreme& extreme) const {
  return dtype_ >= DType::complex32 ? danling::to_text(extreme.value) : element_text(dtype_, extreme.element.data());
}

}  // namespace danling_command
