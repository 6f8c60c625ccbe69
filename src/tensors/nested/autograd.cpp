// Connects nested tensors to autograd. Operators work on the packed values, which carry their own graph. Three nodes
// connect the wrapper to this graph for code that sees only the wrapper: custom functions, hooks, grad().
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// Converts the gradient of a wrapper to the gradient of its values.
at::Tensor gradient_of_values(const at::Tensor& gradient, const Structure& structure, c10::IntArrayRef sizes) {
  const NestedTensorImpl* own = nested(gradient);
  if (own == nullptr) {
    return pack(gradient, structure).expand(sizes);
  }
  check<DataError>(own->structure().matches(structure), "nested_tensor.backward",
                   "expected a gradient of the tensor's own shapes, got one of ", text_of_shapes(*own));
  return values_of(gradient);
}

/// Node: gradient of a wrapper -> gradient of its values.
struct NestedTensorBackward final : Node {
  NestedTensorBackward(Structure chosen, std::vector<std::int64_t> sizes)
      : structure(std::move(chosen)), values_sizes(std::move(sizes)) {}
  std::string name() const override { return "NestedTensorBackward"; }
  variable_list apply(variable_list&& gradients) override {
    const at::Tensor& gradient = gradients.at(0);
    if (!gradient.defined()) {
      return {at::Tensor()};
    }
    return {gradient_of_values(gradient, structure, values_sizes)};
  }

  Structure structure;
  std::vector<std::int64_t> values_sizes;
};

/// Node: gradient of a wrapper with deferred values -> gradients of the tensors that the values depend on. Only for
/// code that sees the wrapper; operators connect deferred values to these tensors when they compute them.
struct NestedDeferredBackward final : Node {
  NestedDeferredBackward(std::shared_ptr<Deferred> from, Structure chosen)
      : deferred(std::move(from)), structure(std::move(chosen)) {}
  std::string name() const override { return "NestedDeferredBackward"; }
  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    deferred = nullptr;
  }
  variable_list apply(variable_list&& gradients) override {
    std::shared_ptr<Deferred> from;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      from = deferred;
    }
    check<StateError>(from != nullptr, "nested_tensor.backward",
                      "expected one backward pass, got a second one; pass retain_graph to the first");
    const auto& sources = from->sources();
    variable_list wanted, out(sources.size());
    std::vector<std::size_t> places;
    for (std::size_t at = 0; at < sources.size(); ++at) {
      const auto first = std::find_if(sources.begin(), sources.end(), [&](const at::Tensor& other) {
        return torch::autograd::impl::gradient_edge(other) == torch::autograd::impl::gradient_edge(sources[at]);
      });
      if (sources[at].requires_grad() && first == sources.begin() + static_cast<std::ptrdiff_t>(at)) {
        wanted.push_back(sources[at]);
        places.push_back(at);
      }
    }
    if (!gradients.at(0).defined() || wanted.empty()) {
      return out;
    }
    const auto found = torch::autograd::grad(
        {from->values()}, wanted, {gradient_of_values(gradients[0], structure, from->shape().sizes)},
        /*retain_graph=*/true, /*create_graph=*/c10::GradMode::is_enabled(), /*allow_unused=*/true);
    for (std::size_t at = 0; at < found.size(); ++at) {
      out[places[at]] = found[at];
    }
    return out;
  }

  std::shared_ptr<Deferred> deferred;
  Structure structure;
};

/// Node: gradient of values -> gradient of their wrapper.
struct NestedValuesBackward final : Node {
  explicit NestedValuesBackward(Structure chosen) : structure(std::move(chosen)) {}
  std::string name() const override { return "NestedValuesBackward"; }
  variable_list apply(variable_list&& gradients) override {
    if (!gradients.at(0).defined()) {
      return {at::Tensor()};
    }
    // The wrapper looks dense, so autograd accumulates into it in place. Copy, because expanded values share memory.
    const at::Tensor& own = gradients.at(0);
    return {wrap(own.is_non_overlapping_and_dense() ? own : own.contiguous(), structure)};
  }

  Structure structure;
};

using NodePtr = decltype(torch::autograd::Edge::function);  // a std::shared_ptr before LibTorch 2.13

template <class N, class Inputs, class... Arguments>
NodePtr make_node(const Inputs& input, Arguments&&... arguments) {
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

}  // namespace

bool has_own_history(const at::Tensor& tensor) {
  const NestedTensorImpl& impl = *nested(tensor);
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta != nullptr && meta->requires_grad() &&
         (meta->grad_fn_ == nullptr || meta->grad_fn_.get() != impl.history || !meta->hooks_.empty() ||
          meta->retains_grad_);
}

at::Tensor wrap(at::Tensor values, Structure structure) {
  const bool requires_grad = values.requires_grad();
  at::Tensor out = at::detail::make_tensor<NestedTensorImpl>(std::move(values), std::move(structure));
  if (requires_grad) {
    add_history(out, *nested(out));
  }
  return out;
}

at::Tensor wrap(std::shared_ptr<Deferred> values, Structure structure) {
  at::Tensor out = at::detail::make_tensor<NestedTensorImpl>(values, structure);
  if (values->requires_grad()) {
    const auto node = make_node<NestedDeferredBackward>(values->sources(), values, std::move(structure));
    torch::autograd::set_history(out, node);
    nested(out)->history = node.get();
  }
  return out;
}

at::Tensor values_of(const at::Tensor& tensor) {
  NestedTensorImpl& impl = *nested(tensor);
  if (!c10::GradMode::is_enabled() || !has_own_history(tensor)) {
    return impl.values();
  }
  at::Tensor values = impl.values().detach();
  torch::autograd::set_history(values, make_node<NestedValuesBackward>(tensor, impl.structure()));
  if (tensor.is_leaf()) {
    // Elements and slices are views of `values`. Autograd cannot track an in-place change of a view back to the leaf:
    // LibTorch refuses in-place changes of views of this kind.
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
                   "expected a tensor for which autograd can record an in-place change, got a leaf that requires "
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
