// Converts elements of tensors to numbers and text, without LibTorch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <danling/formats/detail/tensor_record.hpp>

namespace danling_command {

using danling::formats::DType;

/// Returns the shortest text that parses to the same element, `nan`, `inf`, or a text such as `1.0-2.0j`.
std::string element_text(DType dtype, const std::byte* element);

/// Returns the distance of two elements: 0 if both are NaN or the same infinity, infinity if only one is. For complex
/// numbers, the modulus of the difference.
double element_distance(DType a_type, const std::byte* a, DType b_type, const std::byte* b);

/// Statistics over the elements of one tensor; for complex numbers over their moduli.
class ElementStatistics {
 public:
  void add(DType dtype, std::span<const std::byte> elements);

  std::uint64_t count() const { return count_; }
  /// Number of infinities and NaNs, which all other statistics exclude.
  std::uint64_t non_finite() const { return non_finite_; }
  bool any() const { return count_ > non_finite_; }
  std::string minimum() const { return text(minimum_); }
  std::string maximum() const { return text(maximum_); }
  double mean() const { return mean_; }

 private:
  std::uint64_t count_ = 0;
  std::uint64_t non_finite_ = 0;
  // An element and the number by which it is ordered.
  struct Extreme {
    std::array<std::byte, 16> element = {};
    double value = 0;
  };
  std::string text(const Extreme& extreme) const;

  DType dtype_ = DType::float32;
  Extreme minimum_;
  Extreme maximum_;
  double mean_ = 0;
};

}  // namespace danling_command
