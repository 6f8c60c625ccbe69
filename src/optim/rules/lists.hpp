// Operations of update rules on lists of tensors, for any device and layout. Constants may be on a device.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace danling::inline v0::optim::rules {

/// A constant: a number on the host, or a float64 scalar on a device, which is never waited for.
class Number {
 public:
  Number(double value) : value_(value) {}  // NOLINT(google-explicit-constructor): constants mix with numbers
  explicit Number(at::Tensor value) : tensor_(std::move(value)) {}
  bool on_host() const { return !tensor_.defined(); }
  bool is(double value) const { return on_host() && value_ == value; }
  double host() const { return value_; }
  const at::Tensor& tensor() const { return tensor_; }

 private:
  double value_ = 0;
  at::Tensor tensor_;
};

Number operator+(const Number& a, const Number& b);
Number operator-(const Number& a, const Number& b);
Number operator*(const Number& a, const Number& b);
Number operator/(const Number& a, const Number& b);
Number pow(const Number& base, const Number& exponent);
Number sqrt(const Number& x);
Number maximum(const Number& a, const Number& b);
/// 1 if a > b, else 0.
Number above(const Number& a, const Number& b);
Number select(const Number& condition, const Number& yes, const Number& no);

/// Tensors of one device and dtype, computed together.
struct List {
  std::vector<at::Tensor> tensors;
};

List operator+(const List& a, const List& b);
List operator-(const List& a, const List& b);
List operator*(const List& a, const List& b);
List operator/(const List& a, const List& b);
List operator+(const List& a, const Number& b);
List operator*(const List& a, const Number& b);
List operator/(const List& a, const Number& b);
List sqrt(const List& x);
List abs(const List& x);
List sign(const List& x);
List maximum(const List& a, const List& b);
List lerp(const List& start, const List& end, const Number& weight);
List clamp(const List& x, const Number& low, const Number& high);
List by_sign(const List& x, const Number& positive, const Number& negative, const Number& zero);
List select(const Number& condition, const List& yes, const List& no);
List effective(const List& grad, const List& param, const Number& sign, const Number& decay);

// The same for constants on the host.
inline double pow(double base, double exponent) { return std::pow(base, exponent); }
inline double above(double a, double b) { return a > b ? 1 : 0; }

}  // namespace danling::inline v0::optim::rules
