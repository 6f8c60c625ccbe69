#include <optim/rules/lists.hpp>

#include <algorithm>

#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sign.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/add.h>
#include <ATen/ops/div.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

namespace danling::inline v0::optim::rules {
namespace {

/// `x` as a tensor on the device of `like`.
at::Tensor beside(const Number& like, const Number& x) {
  return x.on_host() ? at::scalar_tensor(x.host(), like.tensor().options()) : x.tensor();
}

template <class Host, class Device>
Number combine(const Number& a, const Number& b, Host&& host, Device&& device) {
  if (a.on_host() && b.on_host()) {
    return host(a.host(), b.host());
  }
  const Number& like = a.on_host() ? b : a;
  return Number(device(beside(like, a), beside(like, b)));
}

}  // namespace

Number operator+(const Number& a, const Number& b) {
  return combine(
      a, b, [](double x, double y) { return x + y; }, [](const auto& x, const auto& y) { return at::add(x, y); });
}

Number operator-(const Number& a, const Number& b) {
  return combine(
      a, b, [](double x, double y) { return x - y; }, [](const auto& x, const auto& y) { return at::sub(x, y); });
}

Number operator*(const Number& a, const Number& b) {
  return combine(
      a, b, [](double x, double y) { return x * y; }, [](const auto& x, const auto& y) { return at::mul(x, y); });
}

Number operator/(const Number& a, const Number& b) {
  return combine(
      a, b, [](double x, double y) { return x / y; }, [](const auto& x, const auto& y) { return at::div(x, y); });
}

Number pow(const Number& base, const Number& exponent) {
  return combine(
      base, exponent, [](double x, double y) { return std::pow(x, y); },
      [](const auto& x, const auto& y) { return at::pow(x, y); });
}

Number sqrt(const Number& x) { return x.on_host() ? Number(std::sqrt(x.host())) : Number(at::sqrt(x.tensor())); }

Number maximum(const Number& a, const Number& b) {
  return combine(
      a, b, [](double x, double y) { return std::max(x, y); },
      [](const auto& x, const auto& y) { return at::maximum(x, y); });
}

Number above(const Number& a, const Number& b) {
  return combine(
      a, b, [](double x, double y) { return x > y ? 1.0 : 0.0; },
      [](const auto& x, const auto& y) { return x.gt(y).to(at::kDouble); });
}

Number select(const Number& condition, const Number& yes, const Number& no) {
  if (condition.on_host()) {
    return condition.host() != 0 ? yes : no;
  }
  return Number(at::where(condition.tensor().ne(0), beside(condition, yes), beside(condition, no)));
}

List operator+(const List& a, const List& b) { return {at::_foreach_add(a.tensors, b.tensors)}; }
List operator-(const List& a, const List& b) { return {at::_foreach_sub(a.tensors, b.tensors)}; }
List operator*(const List& a, const List& b) { return {at::_foreach_mul(a.tensors, b.tensors)}; }
List operator/(const List& a, const List& b) { return {at::_foreach_div(a.tensors, b.tensors)}; }

List operator+(const List& a, const Number& b) {
  return {b.on_host() ? at::_foreach_add(a.tensors, b.host()) : at::_foreach_add(a.tensors, b.tensor())};
}

List operator*(const List& a, const Number& b) {
  if (b.is(1)) {
    return a;
  }
  return {b.on_host() ? at::_foreach_mul(a.tensors, b.host()) : at::_foreach_mul(a.tensors, b.tensor())};
}

List operator/(const List& a, const Number& b) {
  return {b.on_host() ? at::_foreach_div(a.tensors, b.host()) : at::_foreach_div(a.tensors, b.tensor())};
}

List sqrt(const List& x) { return {at::_foreach_sqrt(x.tensors)}; }
List abs(const List& x) { return {at::_foreach_abs(x.tensors)}; }
List sign(const List& x) { return {at::_foreach_sign(x.tensors)}; }
List maximum(const List& a, const List& b) { return {at::_foreach_maximum(a.tensors, b.tensors)}; }

List lerp(const List& start, const List& end, const Number& weight) {
  if (weight.on_host()) {
    return {at::_foreach_lerp(start.tensors, end.tensors, weight.host())};
  }
  return start + (end - start) * weight;
}

List clamp(const List& x, const Number& low, const Number& high) {
  return {at::_foreach_clamp_max(at::_foreach_clamp_min(x.tensors, low.host()), high.host())};
}

List by_sign(const List& x, const Number& positive, const Number& negative, const Number& zero) {
  List out;
  for (const auto& tensor : x.tensors) {
    const auto number = [&](const Number& value) { return at::scalar_tensor(value.host(), tensor.options()); };
    out.tensors.push_back(
        at::where(tensor.gt(0), number(positive), at::where(tensor.lt(0), number(negative), number(zero))));
  }
  return out;
}

List select(const Number& condition, const List& yes, const List& no) {
  if (condition.on_host()) {
    return condition.host() != 0 ? yes : no;
  }
  List out;
  const at::Tensor chosen = condition.tensor().ne(0);
  for (std::size_t i = 0; i < yes.tensors.size(); ++i) {
    out.tensors.push_back(at::where(chosen, yes.tensors[i], no.tensors[i]));
  }
  return out;
}

List effective(const List& grad, const List& param, const Number& sign, const Number& decay) {
  const List signed_grad = sign.is(-1) ? List{at::_foreach_neg(grad.tensors)} : grad;
  return decay.is(0) ? signed_grad : List{at::_foreach_add(signed_grad.tensors, param.tensors, decay.host())};
}

}  // namespace danling::inline v0::optim::rules
