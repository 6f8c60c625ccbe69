#include <tensors/nested/deferred_operators.hpp>

#include <string_view>
#include <utility>

#include <tensors/nested/fused_attention.hpp>
#include <tensors/nested/regroup.hpp>

namespace danling::inline v0::detail {
namespace {

/// A call whose first argument has deferred values.
class DeferredCall {
 public:
  explicit DeferredCall(Call& call)
      : call_(call),
        self_(call[0].toTensor()),
        impl_(*nested(self_)),
        deferred_(impl_.deferred()),
        attention_(deferred_->attention()) {}

  bool run() {
    const std::string_view name = call_.name(), overload = call_.schema().overload_name();
    if (overload.empty()) {
      return name == "dropout"                     ? dropout()
             : name == "bmm" || name == "matmul"   ? attend()
             : name == "view" || name == "reshape" ? split_heads()
                                                   : false;
    }
    return name == "softmax" && overload == "int"                     ? softmax()
           : (name == "mul" || name == "div") && overload == "Scalar" ? scale(name == "div")
           : name == "to" && overload == "dtype"                      ? cast()
           : name == "sum" && overload == "dim_IntList"               ? sum_over_heads()
                                                                      : false;
  }

 private:
  std::int64_t rank() const { return impl_.element_rank(); }

  /// Sets a deferred result with these sizes; `compute` runs when the result is read.
  bool defer(Structure structure, c10::DimVector sizes, caffe2::TypeMeta dtype,
             std::optional<AttentionScores> attention) {
    std::vector<c10::IValue> arguments;
    for (std::size_t at = 0; at < call_.size(); ++at) {
      arguments.push_back(at == 0 ? c10::IValue() : call_[at]);
    }
    auto compute = [op = call_.op(), arguments = std::move(arguments), own = impl_.structure(), structure,
                    source = Deferred::source_of_values(deferred_)] {
      std::vector<c10::IValue> stack = arguments;
      stack[0] = wrap(source(), own);
      op.callBoxed(stack);
      const at::Tensor& result = stack.at(0).toTensor();
      check<StateError>(nested(result) != nullptr && nested(result)->structure().matches(structure),
                        "nested_tensor.values", "expected ", op.operator_name().name, " to have the deferred shape");
      return nested(result)->values();
    };
    call_.finish(wrap(std::make_shared<Deferred>(Deferred::Shape{std::move(sizes), dtype, self_.device()},
                                                 deferred_->sources(), std::move(compute), std::move(attention)),
                      std::move(structure)));
    return true;
  }
  caffe2::TypeMeta dtype_or_own(const c10::IValue& dtype) const {
    return dtype.isNone() ? self_.dtype() : c10::scalarTypeToTypeMeta(dtype.toScalarType());
  }
  bool defer_alike(caffe2::TypeMeta dtype, AttentionScores attention) {
    return defer(impl_.structure(), deferred_->shape().sizes, dtype, std::move(attention));
  }

  bool softmax() {
    const auto dim = impl_.structure().element_dim(call_.integer("dim"), rank());
    if (!attention_ || attention_->normalized || dim != rank() - 1) {
      return false;
    }
    const c10::IValue& dtype = call_["dtype"];
    AttentionScores scores = *attention_;
    scores.normalized = true;
    return (dtype.isNone() || at::isFloatingType(dtype.toScalarType())) &&
           defer_alike(dtype_or_own(dtype), std::move(scores));
  }

  bool dropout() {
    const double p = call_["p"].toDouble();
    if (p == 0 || !call_.boolean("train")) {
      call_.finish(self_);
      return true;
    }
    // The same random numbers are drawn twice in InferenceMode: see Deferred::source_of_values.
    if (!attention_ || !attention_->normalized || attention_->dropout != 0 || !self_.is_cuda() ||
        c10::InferenceMode::is_enabled()) {
      return false;
    }
    AttentionScores scores = *attention_;
    scores.dropout = p;
    const at::Tensor& keys = scores.keys.get("dropout");
    const FusedAttention fused = {scores.query_lengths, scores.key_lengths, scores.scale, p};
    if (find_attention_kernel(scores.queries.get("dropout"), keys, keys, fused) == AttentionKernel::none) {
      return false;
    }
    scores.dropped_inside = std::make_shared<std::atomic<bool>>(false);
    return defer_dropped(std::move(scores));
  }

  /// The weights that a kernel has dropped cannot be recovered later.
  bool defer_dropped(AttentionScores scores) {
    auto compute = [op = call_.op(), p = call_["p"], own = impl_.structure(), inside = scores.dropped_inside,
                    source = Deferred::source_of_values(deferred_)] {
      expect_not_dropped(*inside);
      std::vector<c10::IValue> stack = {source(), p, true};
      op.callBoxed(stack);
      return stack.at(0).toTensor();
    };
    call_.finish(wrap(
        std::make_shared<Deferred>(deferred_->shape(), deferred_->sources(), std::move(compute), std::move(scores)),
        impl_.structure()));
    return true;
  }

  static void expect_not_dropped(const std::atomic<bool>& inside) {
    check<DataError>(!inside, "nested_tensor.dropout",
                     "expected attention weights that are read before their product with values, or no dropout, "
                     "got weights of which a fused kernel dropped some; switch fused kernels off before the forward "
                     "pass to have them: at::globalContext().setSDPUseFlash(false) and setSDPUseMemEfficient(false)");
  }

  bool attend() {
    if (!attention_ || !attention_->normalized) {
      return false;
    }
    const at::Tensor other = call_[1].toTensor();
    const NestedTensorImpl* values = nested(other);
    const Structure& own = impl_.structure();
    if (values == nullptr || values->element_rank() != rank() || !values->structure().batch_first ||
        values->structure().ragged_dims != c10::DimVector{rank() - 2} ||
        !same(values->structure().ragged, attention_->key_lengths) || self_.dtype() != other.dtype()) {
      return false;
    }
    at::Tensor queries = attention_->queries.get("bmm"), keys = attention_->keys.get("bmm");
    if (!deferred_->requires_grad()) {
      queries = queries.detach();
      keys = keys.detach();
    }
    const at::Tensor read = values_of(other);
    const FusedAttention fused = {attention_->query_lengths, attention_->key_lengths, attention_->scale,
                                  attention_->dropout};
    const AttentionKernel kernel = find_attention_kernel(queries, keys, read, fused);
    if (kernel == AttentionKernel::none) {
      return false;
    }
    if (attention_->dropout != 0 && attention_->dropped_inside->exchange(true)) {
      expect_not_dropped(*attention_->dropped_inside);  // the same positions must be dropped twice
    }
    Structure structure = own;
    structure.ragged = attention_->query_lengths;
    structure.ragged_dims = {rank() - 2};
    call_.finish(wrap(attend_fused(kernel, queries, keys, read, fused), std::move(structure)));
    return true;
  }

  bool scale(bool divides) {
    const c10::IValue& other = call_[1];
    if (other.isComplexDouble()) {
      return false;
    }
    std::optional<AttentionScores> scores;
    if (attention_ && !attention_->normalized) {
      scores = attention_;
      const double factor = other.toScalar().toDouble();
      scores->scale = divides ? scores->scale / factor : scores->scale * factor;
    }
    return defer(impl_.structure(), deferred_->shape().sizes, self_.dtype(), std::move(scores));
  }

  /// Casts of autocast.
  bool cast() {
    if (!attention_ || call_.boolean("copy") || !call_["memory_format"].isNone()) {
      return false;
    }
    const at::ScalarType type = call_["dtype"].toScalarType();
    if (type == self_.scalar_type()) {
      call_.finish(self_);
      return true;
    }
    return at::isFloatingType(type) && defer_alike(c10::scalarTypeToTypeMeta(type), *attention_);
  }

  /// Reshapes (batch * heads, length, keys) to (batch, heads, length, keys), which MultiheadAttention averages.
  bool split_heads() {
    const Structure& own = impl_.structure();
    const auto sizes = call_.integers(call_.has("size") ? "size" : "shape");
    if (rank() != 2 || own.ragged_dims.size() != 2 || !own.batch_first || !sizes || sizes->size() != 4) {
      return false;
    }
    const std::int64_t batch = (*sizes)[0], heads = (*sizes)[1];
    if (batch <= 0 || heads <= 0 || batch * heads != own.batch() || (*sizes)[2] != self_.size(1) ||
        (*sizes)[3] != self_.size(2) || self_.numel() == 0 || (heads == 1 && self_.size(1) == 1)) {
      return false;  // with one head and one query, either could be the dimension of size 1
    }
    Structure structure = own;
    structure.ragged = heads == 1 ? own.ragged : merge_elements(own.ragged, heads);
    structure.ragged_dims = {1, 2};
    return structure.ragged != nullptr && defer(structure, {structure.ragged->rows(), heads}, self_.dtype(), {});
  }

  bool sum_over_heads() {
    const Structure& own = impl_.structure();
    const c10::IValue& dtype = call_["dtype"];  // autocast on CUDA asks for float32
    if ((!dtype.isNone() && !at::isFloatingType(dtype.toScalarType())) || call_.boolean("keepdim") || rank() != 3 ||
        own.ragged_dims != c10::DimVector{1, 2} || !own.batch_first ||
        call_.integers("dim") != std::vector<std::int64_t>{1}) {
      return false;
    }
    Structure structure = own;
    structure.ragged_dims = {0, 1};
    return defer(structure, {structure.ragged->rows()}, dtype_or_own(dtype), {});
  }

  Call& call_;
  const at::Tensor self_;
  const NestedTensorImpl& impl_;
  const std::shared_ptr<Deferred> deferred_;
  const std::optional<AttentionScores>& attention_;
};

}  // namespace

std::optional<at::Tensor> defer_scores(const at::Tensor& queries, const Layout& query_layout, const at::Tensor& keys,
                                       const Layout& key_layout, const Structure& structure, c10::IntArrayRef sizes,
                                       const MultiplyScores& multiply) {
  const std::int64_t rank = queries.dim();
  const bool are_scores = may_fuse_attention() && query_layout.structure && key_layout.structure &&
                          (rank == 2 || rank == 3) && keys.dim() == rank &&
                          query_layout.structure->ragged_dims == c10::DimVector{rank - 2} &&
                          key_layout.structure->ragged_dims == c10::DimVector{rank - 1} && structure.batch_first &&
                          queries.dtype() == keys.dtype() && queries.device() == keys.device() &&
                          (queries.scalar_type() == at::kFloat || queries.scalar_type() == at::kDouble ||
                           queries.scalar_type() == at::kHalf || queries.scalar_type() == at::kBFloat16);
  if (!are_scores) {
    return std::nullopt;
  }
  AttentionScores scores{UnchangedTensor(queries), UnchangedTensor(keys), query_layout.structure->ragged,
                         key_layout.structure->ragged};
  const bool differentiable = c10::GradMode::is_enabled() && (queries.requires_grad() || keys.requires_grad());
  std::vector<at::Tensor> sources;
  if (differentiable) {
    sources = {queries, keys};
  }
  auto compute = [left = scores.queries, right = scores.keys, multiply] {
    return multiply(left.get("bmm"), right.get("bmm"));
  };
  return wrap(std::make_shared<Deferred>(
                  Deferred::Shape{c10::DimVector(sizes.begin(), sizes.end()), queries.dtype(), queries.device()},
                  std::move(sources), std::move(compute), std::move(scores)),
              structure);
}

bool call_on_deferred(Call& call) {
  const NestedTensorImpl* impl = call[0].isTensor() ? nested(call[0].toTensor()) : nullptr;
  return impl != nullptr && impl->deferred() != nullptr && !impl->deferred()->is_computed() &&
         !has_own_history(call[0].toTensor()) && DeferredCall(call).run();
}

}  // namespace danling::inline v0::detail
