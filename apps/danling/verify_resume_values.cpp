#include "verify_resume_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ATen/ops/equal.h>
#include <ATen/ops/view_as_real.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

namespace danling_command {
namespace {

using danling::State;
using danling::detail::concat;

std::string shape_of(const at::Tensor& tensor) {
  return concat(c10::toString(tensor.scalar_type()), " [", danling::detail::join(tensor.sizes().vec()), "]");
}

std::string position_of(std::int64_t element, at::IntArrayRef sizes) {
  std::vector<std::int64_t> out(sizes.size());
  for (std::size_t i = sizes.size(); i-- > 0;) {
    out[i] = element % sizes[i];
    element /= sizes[i];
  }
  return danling::detail::join(out);
}

std::string tensor_difference(const at::Tensor& a, const at::Tensor& b, const Tolerance& tolerance) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return concat(shape_of(a), " in the reference, ", shape_of(b), " here");
  }
  if (!a.is_floating_point() && !a.is_complex()) {
    return at::equal(a, b) ? "" : concat("the elements of a tensor ", shape_of(a), " differ");
  }
  const auto real = [](const at::Tensor& tensor) {
    const auto whole = tensor.detach().cpu().resolve_conj().resolve_neg();
    return (whole.is_complex() ? at::view_as_real(whole) : whole).to(at::kDouble).contiguous();
  };
  const at::Tensor left = real(a);
  const at::Tensor right = real(b);
  const double* p = left.const_data_ptr<double>();
  const double* q = right.const_data_ptr<double>();
  double largest = 0;
  for (std::int64_t i = 0; i < left.numel(); ++i) {
    largest = std::isfinite(p[i]) ? std::max(largest, std::abs(p[i])) : largest;
  }
  std::int64_t differing = 0;
  std::int64_t first = 0;
  double farthest = 0;
  for (std::int64_t i = 0; i < left.numel(); ++i) {
    if (!tolerance.accepts(p[i], q[i], largest)) {
      first = differing++ == 0 ? i : first;
      farthest = std::max(farthest, std::abs(p[i] - q[i]));
    }
  }
  if (differing == 0) {
    return {};
  }
  return concat(differing, " of ", left.numel(), " numbers differ, by at most ", danling::to_text(farthest),
                "; first at [", position_of(first, left.sizes()), "]: ", danling::to_text(p[first]),
                " in the reference, ", danling::to_text(q[first]), " here");
}

// Prefixes the text of a difference with its path.
std::string at_path(const std::string& path, const std::string& text) {
  return text.empty() ? text : concat(path.empty() ? "" : concat(path, ": "), text);
}

std::string difference_at(const State& a, const State& b, const Tolerance& tolerance, const std::string& path) {
  if (a.is_map() && b.is_map()) {
    const auto below = [&](const danling::Key& key) {
      const std::string name = key.is_string() ? key.string() : key.text();
      return path.empty() ? name : concat(path, ".", name);
    };
    for (const auto& entry : a.map()) {
      const State* other = b.map().find(entry.key);
      auto text = other == nullptr ? concat(below(entry.key), " is missing")
                                   : difference_at(entry.value, *other, tolerance, below(entry.key));
      if (!text.empty()) {
        return text;
      }
    }
    for (const auto& entry : b.map()) {
      if (a.map().find(entry.key) == nullptr) {
        return concat(below(entry.key), " is not in the reference");
      }
    }
    return {};
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    if (a.items().size() != b.items().size()) {
      return at_path(path, concat(a.items().size(), " items in the reference, ", b.items().size(), " here"));
    }
    for (std::size_t i = 0; i < a.items().size(); ++i) {
      if (auto text = difference_at(a.items()[i], b.items()[i], tolerance, concat(path, "[", i, "]")); !text.empty()) {
        return text;
      }
    }
    return {};
  }
  const auto is_plain = [](const State& value) {
    return value.is_tensor() && value.tensor().defined() && value.tensor().has_storage();
  };
  if (is_plain(a) && is_plain(b)) {
    return at_path(path, tensor_difference(a.tensor(), b.tensor(), tolerance));
  }
  if (a.is_double() && b.is_double() && tolerance.accepts(a.number(), b.number(), 0)) {
    return {};
  }
  const auto text = danling::first_difference(a, b);
  return text.empty() ? text : concat(path, text.starts_with(":") || path.empty() ? "" : " ", text);
}

}  // namespace

std::string value_difference(const State& a, const State& b, const Tolerance& tolerance) {
  return difference_at(a, b, tolerance, "");
}

}  // namespace danling_command
