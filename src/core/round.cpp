#include <danling/core/round.hpp>

#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace danling::inline v0 {

// Rounds through text, which is exact; scaling by 10^digits is not.
double round_to(double value, int digits) {
  std::array<char, 400> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits);
  if (!std::isfinite(value) || end.ec != std::errc()) {
    return value;
  }
  double out = value;
  std::from_chars(text.data(), end.ptr, out);
  return out;
}

namespace {

Result::Value rounded_value(Result::Value value, int digits) {
  const auto round_all = [digits](std::vector<double>& values) {
    for (double& item : values) {
      item = round_to(item, digits);
    }
  };
  if (auto* number = std::get_if<double>(&value)) {
    *number = round_to(*number, digits);
  } else if (auto* list = std::get_if<std::vector<double>>(&value)) {
    round_all(*list);
  } else if (auto* array = std::get_if<Result::Array>(&value)) {
    round_all(array->values);
  } else {
    value = rounded(std::get<Result>(value), digits);
  }
  return value;
}

}  // namespace

Result rounded(const Result& result, int digits) {
  Result out;
  for (const auto& [name, value] : result) {
    out.set(name, rounded_value(value, digits));
  }
  return out;
}

}  // namespace danling::inline v0
