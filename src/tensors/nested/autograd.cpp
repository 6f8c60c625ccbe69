// Where a nested tensor meets autograd. Operators work on its values, which carry their own graph; two nodes connect
// the wrapper to it, for code that knows nothing of the values: custom functions, hooks, grad().
#include <memory>
#include <type_traits>
#include <utility>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include "tensors/nested/impl.hpp"

namespace danling::inline v0::detail {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// From the gradient of a wrapper to that of its values.
struct NestedTensorBackward final : Node {
  NestedTensorBackward(Structure chosen, std::vector<std::int64_t> sizes)
      : structure(std::move(chosen)), values_sizes(std::move(sizes)) {}
  std::string name() const override { return "NestedTensorBackward"; }
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& gradient = gradients.at(0);
    if (!gradient.defined()) {
      return {at::Tensor()};
    }
    const NestedTensorImpl* own = nested(gradient);
    if (own == nullptr) {
      return {pack(gradient, structure).expand(values_sizes)};
    }
    check<DataError>(own->structure().matches(structure), "nested_tensor.backward",
                     "expected a gradient of the tensor's own shapes, got one of ", text_of_shapes(*own));
    return {values_of(gradient)};
  }

  Structure structure;
  std::vector<std::int64_t> values_sizes;
};

/// From the gradient of values to that of their wrapper.
struct NestedValuesBackward final : Node {
  explicit NestedValuesBackward(Structure chosen) : structure(std::move(chosen)) {}
  std::string name() const override { return "NestedValuesBackward"; }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients.at(0).defined()) {
      return {at::Tensor()};
    }
    // The wrapper looks dense, so autograd adds to it in place: expanded values would share their memory.
    const at::Tensor& own = gradients.at(0);
    return {wrap(own.is_non_overlapping_and_dense() ? own : own.contiguous(), structure)};
  }

  Structure structure;
};

using NodePtr = decltype(torch::autograd::Edge::function);  // a std::shared_ptr before LibTorch 2.13

template <class N, class... Arguments>
NodePtr make_node(const at::Tensor& input, Arguments&&... arguments) {
  NodePtr node;
  if constexpr (std::is_same_v<NodePtr, std::shared_ptr<Node>>) {
    node = std::make_shared<N>(std::forward<Arguments>(arguments)...);
  } else {
    node = c10::make_intrusive<N>(std::forward<Arguments>(arguments)...);
  }
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  return node;
}

void add_history(const at::Tensor& tensor, NestedTensorImpl& impl) {
  const auto node = make_node<NestedTensorBackward>(impl.values(), impl.structure(), impl.values().sizes().vec());
  torch::autograd::set_history(tensor, node);
  impl.history = node.get();
}

/// Whether autograd knows the wrapper by something else than its values: it is a leaf, a custom function made it, or
/// someone waits for its gradient.
bool has_own_history(const at::Tensor& tensor, const NestedTensorImpl& impl) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta != nullptr && meta->requires_grad() &&
         (meta->grad_fn_ == nullptr || meta->grad_fn_.get() != impl.history || !meta->hooks_.empty() ||
          meta->retains_grad_);
}

}  // namespace

at::Tensor wrap(at::Tensor values, Structure structure) {
  const bool requires_grad = values.requires_grad();
  at::Tensor out = at::detail::make_tensor<NestedTensorImpl>(std::move(values), std::move(structure));
  if (requires_grad) {
    add_history(out, *nested(out));
  }
  return out;
}

at::Tensor values_of(const at::Tensor& tensor) {
  NestedTensorImpl& impl = *nested(tensor);
  if (!c10::GradMode::is_enabled() || !has_own_history(tensor, impl)) {
    return impl.values();
  }
  at::Tensor values = impl.values().detach();
  torch::autograd::set_history(values, make_node<NestedValuesBackward>(tensor, impl.structure()));
  if (tensor.is_leaf()) {
    // Elements and slices are views of it. Autograd could not follow a change of one into the leaf: LibTorch refuses to
    // change views of this kind in place.
    const at::Tensor view = values.alias();
    if (auto* meta = torch::autograd::impl::get_view_autograd_meta(view)) {  // null below autograd, as in zeros_like
      meta->set_creation_meta(torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
      return view;
    }
  }
  return values;
}

void expect_changeable(const at::Tensor& tensor, std::string_view operation) {
  check<DataError>(!c10::GradMode::is_enabled() || !tensor.requires_grad() || !tensor.is_leaf(),
                   concat("nested_tensor.", operation),
                   "expected a tensor that autograd can follow through a change in place, got a leaf that requires "
                   "gradients; change it under NoGradGuard");
}

void forget_history(const at::Tensor& tensor) {
  NestedTensorImpl& impl = *nested(tensor);
  if (auto* meta = torch::autograd::impl::get_autograd_meta(tensor)) {
    torch::autograd::impl::set_gradient_edge(tensor, torch::autograd::Edge());
    meta->requires_grad_ = false;
  }
  impl.set_values(impl.values().detach());
  impl.history = nullptr;
}

void replace_values(const at::Tensor& tensor, at::Tensor values) {
  NestedTensorImpl& impl = *nested(tensor);
  const bool has_history = values.requires_grad();
  impl.set_values(std::move(values));
  if (impl.version_counter().enabled()) {
    impl.bump_version();
  }
  if (has_history && c10::GradMode::is_enabled()) {
    add_history(tensor, impl);
  }
  if (impl.write_back) {
    impl.write_back(impl.values());
  }
}

}  // namespace danling::inline v0::detail
