// Random programs on nested tensors, beside the same program on each element: values, sizes, types, gradients.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>
#include <danling/tensors/nested_tensor.hpp>

#include <nested/random_numbers.hpp>

namespace random_programs {

using danling::NestedTensor;

/// The result of a program differs from that of its elements.
struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One program: a nested tensor, and its elements as plain tensors.
class Program {
 public:
  explicit Program(std::uint64_t seed) : random(seed) {}

  Random random;
  Tensor x;
  Tensors each;
  /// An additional element, not in the batch: its results show the expected ones of an empty batch.
  Tensor phantom;
  bool ended = false;
  std::string text;
  std::map<std::string, std::string>* refusals = nullptr;

  std::int64_t rank() const { return x.dim() - 1; }
  std::int64_t batch() const { return std::ssize(each); }
  bool batch_first() const { return NestedTensor(x).batch_first(); }
  std::int64_t batch_dim() const { return batch_first() || rank() == 0 ? 0 : 1; }
  Dims ragged() const { return NestedTensor(x).ragged_dims(); }
  bool is_ragged(std::int64_t dim) const {
    const Dims dims = ragged();
    return std::find(dims.begin(), dims.end(), dim) != dims.end();
  }
  bool has_static(std::int64_t dim) const { return dim >= 0 && dim < rank() && !is_ragged(dim); }
  /// Returns the dimension of the tensor for one of an element.
  std::int64_t outer(std::int64_t dim) const { return dim + (dim >= batch_dim() ? 1 : 0); }
  /// As above, sometimes counted from the end.
  std::int64_t outer_any(std::int64_t dim) { return random.chance(50) ? outer(dim) : outer(dim) - x.dim(); }
  bool floating() const { return x.is_floating_point(); }
  std::int64_t any_dim() { return random.below(rank()); }
  bool all_single(std::int64_t dim) const {
    return std::all_of(each.begin(), each.end(), [&](const Tensor& one) { return one.size(dim) == 1; });
  }
  bool any_empty(std::int64_t dim) const {
    return std::any_of(each.begin(), each.end(), [&](const Tensor& one) { return one.size(dim) == 0; });
  }
  bool any_empty() const {
    return std::any_of(each.begin(), each.end(), [&](const Tensor& one) { return one.numel() == 0; });
  }
  /// Returns whether a value occurs twice in an element; then the index of an extreme is undefined.
  bool has_ties() const {
    return std::any_of(each.begin(), each.end(), [&](const Tensor& one) {
      return std::get<0>(at::_unique(one.detach().flatten())).numel() != one.numel();
    });
  }
  double largest() const {
    double out = 0;
    for (const Tensor& one : each) {
      const Tensor finite = one.detach().to(torch::kDouble).abs();
      out = finite.numel() == 0
                ? out
                : std::max(out, finite.isfinite().all().item<bool>() ? finite.max().item<double>() : 1e300);
    }
    return out;
  }

  /// A plain tensor for the nested tensor and for the elements.
  std::pair<Tensor, Tensor> leaf(const Dims& sizes) {
    const Tensor own = random.values(sizes).requires_grad_(floating()),
                 other = own.detach().clone().requires_grad_(floating());
    if (!floating()) {
      return {own.mul(4).to(x.scalar_type()), other.mul(4).to(x.scalar_type())};
    }
    leaves_.emplace_back(own, other);
    return {own.to(x.scalar_type()), other.to(x.scalar_type())};
  }
  /// A nested one of elements of these sizes.
  std::pair<Tensor, Tensors> nested_leaf(const std::vector<Dims>& sizes) {
    Tensors own, other;
    for (const Dims& one : sizes) {
      const auto pair = leaf(one);
      own.push_back(pair.first);
      other.push_back(pair.second);
    }
    return {NestedTensor(own, {.dtype = x.scalar_type(), .batch_first = batch_first(), .ragged_dims = ragged()}),
            other};
  }
  std::vector<Dims> shapes() const {
    std::vector<Dims> out;
    for (const Tensor& one : each) {
      out.push_back(one.sizes().vec());
    }
    return out;
  }

  /// Returns the part of a plain tensor that meets an element; its sizes are 1 or those of the padded tensor.
  Tensor part_for(const Tensor& plain, const Tensor& element, std::int64_t at) const {
    Tensor part = plain;
    const std::int64_t missing = x.dim() - plain.dim();
    for (std::int64_t dim = x.dim(); dim-- > missing;) {
      if (dim == batch_dim()) {
        part = part.select(dim - missing, part.size(dim - missing) == 1 ? 0 : at);
        continue;
      }
      const std::int64_t own = element.size(dim - (dim > batch_dim() ? 1 : 0));
      if (part.size(dim - missing) != 1 || own == 0) {
        part = part.narrow(dim - missing, 0, std::min(own, part.size(dim - missing)));
      }
    }
    return part;
  }
  Dims plain_sizes() {
    Dims out = x.sizes().vec();
    for (std::int64_t& size : out) {
      size = random.chance(40) ? 1 : size;
    }
    const std::int64_t leave = random.chance(50) ? random.below(x.dim() + 1) : 0;
    return Dims(out.begin() + leave, out.end());
  }

  using Whole = std::function<Tensor(const Tensor&)>;
  using Each = std::function<Tensor(const Tensor&, std::int64_t)>;

  /// Applies the operator to both; then `x` and `each` are the results. `plain_batch_dim`: that of a plain result.
  void apply(const std::string& name, const Whole& whole, const Each& on_each, std::int64_t plain_batch_dim = -1) {
    text += " | " + name;
    Tensors expected;
    Tensor expected_phantom;
    bool fails = false;
    std::string why;
    try {
      for (std::int64_t at = 0; at < batch(); ++at) {
        expected.push_back(on_each(each[static_cast<std::size_t>(at)], at));
      }
      if (batch() == 0) {
        expected_phantom = on_each(phantom, -1);
      }
    } catch (const std::exception& error) {
      fails = true;
      why = first_line(error);
    }
    Tensor got;
    try {
      got = whole(x);
    } catch (const std::exception& error) {
      const std::string message = first_line(error);
      text += " [refused]";
      if (message.find("INTERNAL ASSERT") != std::string::npos) {
        throw Difference("assertion of LibTorch: " + message);
      }
      if (!fails && refusals != nullptr) {
        const std::string key = name.substr(0, name.find('(')) + ": " + without_numbers(message);
        refusals->emplace(key, text + " -- " + message);
      }
      return;
    }
    if (fails) {
      if (batch() > 0 && !any_empty()) {
        throw Difference("no error, where an element alone has one: " + why);
      }
      ended = true;
      return;
    }
    if (batch() == 0) {
      compare_empty(got, expected_phantom, plain_batch_dim);
      return;
    }
    compare(got, expected, plain_batch_dim);
    each = expected;
    x = got;
  }
  /// Ends the program with a result that has no batch.
  void finish(const std::string& name, const Whole& whole, const std::function<Tensor(const Tensors&)>& on_all) {
    text += " | " + name;
    Tensor expected, got;
    bool fails = false;
    std::string why;
    try {
      expected = on_all(each);
    } catch (const std::exception& error) {
      fails = true;
      why = first_line(error);
    }
    try {
      got = whole(x);
    } catch (const std::exception& error) {
      text += " [refused]";
      const std::string message = first_line(error);
      if (message.find("INTERNAL ASSERT") != std::string::npos) {
        throw Difference("assertion of LibTorch: " + message);
      }
      if (!fails && refusals != nullptr) {
        refusals->emplace(name.substr(0, name.find('(')) + ": " + without_numbers(message), text + " -- " + message);
      }
      return;
    }
    if (fails) {
      throw Difference("no error, where elements alone have one: " + why);
    }
    expect_close(got, expected, "result");
    x = got;
    each = {expected};
    ended = true;
    single_ = true;
  }

  /// Compares the gradients of a weighted sum of the result, and the gradients of these gradients.
  void check_gradients() {
    if (each.empty() || !each[0].is_floating_point()) {
      return;
    }
    Tensor own = torch::zeros({}, torch::kDouble), other = own;
    Tensors parts;
    const bool nested = NestedTensor::is_nested(x);
    const int way = nested ? static_cast<int>(ragged().empty() ? 0 : random.below(3)) : single_ ? 4 : 3;
    if (way == 0) {
      parts = NestedTensor(x).elements();
    } else if (way == 3) {
      parts = x.unbind(plain_batch_dim_);
    } else if (way == 4) {
      parts = {x};
    }
    Tensors weights;
    for (std::size_t at = 0; at < each.size(); ++at) {
      const Tensor weight = random.values(each[at].sizes().vec());
      weights.push_back(weight);
      other = other + (each[at].to(torch::kDouble) * weight).sum();
      if (!parts.empty()) {
        own = own + (parts[at].to(torch::kDouble) * weight).sum();
      }
    }
    if (way == 1 || way == 2) {
      const NestedTensor weight(weights, {.batch_first = batch_first(), .ragged_dims = ragged()});
      own = way == 1 ? (x.to(torch::kDouble) * weight).sum()
                     : (NestedTensor(x.to(torch::kDouble)).tensor() * weight.tensor()).sum();
    }
    expect_close(own.detach(), other.detach(), concat_way("sum", way),
                 each[0].scalar_type() == torch::kDouble ? 1e-6 : 1e-4);
    if (own.requires_grad() != other.requires_grad()) {
      throw Difference(concat_way("requires_grad differs", way));
    }
    if (!other.requires_grad()) {
      return;
    }
    const bool twice = random.chance(30) && each[0].scalar_type() == torch::kDouble;
    Tensors own_leaves, other_leaves;
    for (const auto& pair : leaves_) {
      own_leaves.push_back(pair.first);
      other_leaves.push_back(pair.second);
    }
    const auto grad = [&](const Tensor& of, const Tensors& leaves, bool again) {
      Tensors out = torch::autograd::grad({of}, leaves, {}, again, again, /*allow_unused=*/true);
      for (std::size_t at = 0; at < out.size(); ++at) {
        out[at] = out[at].defined() ? out[at] : torch::zeros_like(leaves[at]);
      }
      return out;
    };
    const Tensors left = grad(own, own_leaves, twice), right = grad(other, other_leaves, twice);
    Tensor own_slope = torch::zeros({}, torch::kDouble), other_slope = own_slope;
    for (std::size_t at = 0; at < left.size(); ++at) {
      expect_close(left[at].detach(), right[at].detach(), concat_way("gradient of leaf " + std::to_string(at), way),
                   1e-5);
      if (twice) {
        const Tensor weight = random.values(left[at].sizes().vec());
        own_slope = own_slope + (left[at] * weight).sum();
        other_slope = other_slope + (right[at] * weight).sum();
      }
    }
    if (!twice || !other_slope.requires_grad() || !own_slope.requires_grad()) {
      return;
    }
    const Tensors second = grad(own_slope, own_leaves, false), wanted = grad(other_slope, other_leaves, false);
    for (std::size_t at = 0; at < second.size(); ++at) {
      expect_close(second[at].masked_fill(wanted[at].isnan(), 0), wanted[at].nan_to_num(0),
                   concat_way("second gradient of leaf " + std::to_string(at), way), 1e-4);
    }
  }

  static std::string first_line(const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    const std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
    return text.substr(0, text.find('\n'));
  }

 private:
  static std::string concat_way(const std::string& what, int way) {
    return what + ", loss of kind " + std::to_string(way);
  }
  static std::string without_numbers(const std::string& message) {
    std::string out;
    for (const char letter : message.substr(0, 300)) {
      if (std::isdigit(static_cast<unsigned char>(letter)) == 0) {
        out += letter;
      }
    }
    // Lists of shapes differ in length.
    const auto got = out.find(", got ");
    return out.substr(0, got);
  }

  static void expect_close(const Tensor& got, const Tensor& expected, const std::string& what,
                           double tolerance = 1e-7) {
    std::ostringstream out;
    if (got.sizes() != expected.sizes()) {
      out << what << ": sizes " << got.sizes() << ", expected " << expected.sizes();
    } else if (got.scalar_type() != expected.scalar_type()) {
      out << what << ": type " << got.dtype() << ", expected " << expected.dtype();
    } else {
      const double allowed = got.scalar_type() == torch::kFloat      ? 1e-4
                             : got.scalar_type() == torch::kBFloat16 ? 5e-2
                                                                     : tolerance;
      const Tensor a = got.detach().to(torch::kDouble), b = expected.detach().to(torch::kDouble);
      const double scale = b.numel() == 0 ? 1 : std::max(1.0, b.nan_to_num(0, 0, 0).abs().max().item<double>());
      if (!torch::allclose(a, b, allowed, allowed * scale, true)) {
        out << what << ": differs by " << (a - b).abs().max().item<double>() << ":\n"
            << got << "\nexpected\n"
            << expected;
      }
    }
    if (!out.str().empty()) {
      throw Difference(out.str().substr(0, 1500));
    }
  }

  void compare(const Tensor& got, const Tensors& expected, std::int64_t plain_batch_dim) {
    if (!NestedTensor::is_nested(got)) {
      ended = true;
      plain_batch_dim = std::max<std::int64_t>(plain_batch_dim, 0);
      plain_batch_dim_ = plain_batch_dim;
      if (got.dim() != expected[0].dim() + 1 || got.size(plain_batch_dim) != std::ssize(expected)) {
        throw Difference(danling::detail::concat("plain result of sizes (", danling::detail::join(got.sizes()),
                                                 "), expected elements ", text_of(expected), "with the batch at ",
                                                 plain_batch_dim));
      }
      for (std::size_t at = 0; at < expected.size(); ++at) {
        expect_close(got.select(plain_batch_dim, static_cast<std::int64_t>(at)), expected[at],
                     "plain result of element " + std::to_string(at));
      }
      return;
    }
    const NestedTensor nested(got);
    const Tensors parts = nested.elements();
    if (parts.size() != expected.size()) {
      throw Difference(danling::detail::concat(parts.size(), " elements, expected ", expected.size()));
    }
    std::int64_t numel = 0;
    Dims longest(static_cast<std::size_t>(expected[0].dim()), 0);
    for (std::size_t at = 0; at < parts.size(); ++at) {
      expect_close(parts[at], expected[at], "element " + std::to_string(at));
      numel += expected[at].numel();
      for (std::size_t dim = 0; dim < longest.size(); ++dim) {
        longest[dim] = std::max(longest[dim], expected[at].size(static_cast<std::int64_t>(dim)));
      }
    }
    if (nested.tensor().sizes() != got.sizes() || nested.to_string().empty()) {
      throw Difference("tensor(), mask() or to_string()");
    }
    const bool first = nested.batch_first() || longest.empty();
    if (plain_batch_dim >= 0 && (first ? 0 : 1) != plain_batch_dim) {
      throw Difference(danling::detail::concat("batch at dimension ", first ? 0 : 1, ", expected ", plain_batch_dim));
    }
    longest.insert(longest.begin() + (first ? 0 : 1), std::ssize(expected));
    if (got.sizes() != c10::IntArrayRef(longest) || got.numel() != numel) {
      throw Difference(danling::detail::concat("sizes (", danling::detail::join(got.sizes()), ") and ", got.numel(),
                                               " values, expected ", text_of(longest), " and ", numel));
    }
    if (got.scalar_type() != nested.concat().scalar_type() || got.requires_grad() != nested.concat().requires_grad()) {
      throw Difference("the wrapper and its values differ in type or requires_grad");
    }
  }

  void compare_empty(const Tensor& got, const Tensor& expected, std::int64_t plain_batch_dim) {
    if (got.dim() != expected.dim() + 1 || got.numel() != 0 || got.scalar_type() != expected.scalar_type()) {
      throw Difference(danling::detail::concat(
          "empty batch: ", got.dtype().name(), " of sizes (", danling::detail::join(got.sizes()), "), expected ",
          expected.dtype().name(), ", elements of (", danling::detail::join(expected.sizes()), ")"));
    }
    if (!NestedTensor::is_nested(got)) {
      if (got.size(std::max<std::int64_t>(plain_batch_dim, 0)) != 0) {
        throw Difference("empty batch: plain result of another batch");
      }
      ended = true;
      return;
    }
    const NestedTensor nested(got);
    std::int64_t at = 0;
    const Dims dims = nested.ragged_dims();
    for (std::int64_t dim = 0; dim < expected.dim(); ++dim) {
      at = dim + (dim >= (nested.batch_first() ? 0 : 1) ? 1 : 0);
      if (std::find(dims.begin(), dims.end(), dim) == dims.end() && got.size(at) != expected.size(dim)) {
        throw Difference(danling::detail::concat("empty batch: sizes (", danling::detail::join(got.sizes()),
                                                 "), expected elements of (", danling::detail::join(expected.sizes()),
                                                 ")"));
      }
    }
    phantom = expected;
    x = got;
  }

  std::vector<std::pair<Tensor, Tensor>> leaves_;
  bool single_ = false;
  std::int64_t plain_batch_dim_ = 0;
};

}  // namespace random_programs
