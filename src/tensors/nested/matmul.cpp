// Matrix products: of tokens with weights, and of the elements of two nested tensors.
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <utility>

#include <ATen/ops/mm.h>

#include <tensors/nested/deferred_operators.hpp>
#include <tensors/nested/operators.hpp>
#include <tensors/nested/product.hpp>

namespace danling::inline v0::detail {
namespace {

/// One factor: a nested tensor, or a plain tensor with one matrix per element.
struct Factor {
  at::Tensor values;  ///< plain factor: (batch, sizes...)
  Layout layout;
  std::int64_t rank = 0;  ///< rank of the elements
  at::Tensor given;       ///< the argument, for messages

  bool is_ragged(std::int64_t dim) const { return layout.structure && layout.structure->is_ragged(dim); }
  std::int64_t size(std::int64_t dim) const {
    return layout.structure ? values.size(layout.structure->values_dim(dim)) : values.size(dim + 1);
  }
  /// Returns the size of dimension `dim` in each of `batch` elements.
  std::vector<std::int64_t> sizes(std::int64_t dim, std::int64_t batch) const {
    std::vector<std::int64_t> out(static_cast<std::size_t>(batch));
    if (!is_ragged(dim)) {
      std::fill(out.begin(), out.end(), size(dim));
      return out;
    }
    const std::size_t index = layout.structure->ragged_index(dim);
    for (std::int64_t element = 0; element < batch; ++element) {
      out[static_cast<std::size_t>(element)] = layout.structure->ragged->sizes(element)[index];
    }
    return out;
  }
};

Factor factor_of(Call& call, const at::Tensor& tensor, const NestedTensorImpl& other) {
  if (const NestedTensorImpl* impl = nested(tensor)) {
    call.expect(impl->structure().batch_dim(impl->element_rank()) < impl->dim() - 2,
                "expected a batch before the two dimensions of the matrices, got elements ", text_of_shapes(*impl),
                " with the batch at dimension ", impl->structure().batch_dim(impl->element_rank()));
    return {values_of(tensor), {impl->structure()}, impl->element_rank(), tensor};
  }
  const std::int64_t batch = other.structure().batch(), rank = other.element_rank();
  call.expect(other.structure().batch_first && tensor.dim() >= 2 && tensor.dim() <= rank + 1 &&
                  (tensor.dim() <= rank || tensor.size(0) == batch || tensor.size(0) == 1),
              "expected a matrix for all or for each of ", batch, " elements, got a tensor of shape (",
              join(tensor.sizes()), ") with elements ", text_of_shapes(other));
  at::Tensor full = tensor;
  while (full.dim() <= rank) {
    full = full.unsqueeze(0);
  }
  auto sizes = full.sizes().vec();
  sizes[0] = batch;
  return {full.expand(sizes), {}, rank, tensor};
}

/// Expands dimensions before the last two to equal sizes, where a static one has size 1.
void broadcast_factors(Call& call, Factor& a, Factor& b, std::int64_t batch) {
  for (std::int64_t dim = 0; dim < a.rank - 2; ++dim) {
    const auto left = a.sizes(dim, batch), right = b.sizes(dim, batch);
    if (left == right) {
      continue;
    }
    const auto all_one = [](const std::vector<std::int64_t>& sizes) {
      return std::all_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size == 1; });
    };
    Factor& small = all_one(left) ? a : b;
    const auto& wanted = all_one(left) ? right : left;
    const bool uniform = std::all_of(wanted.begin(), wanted.end(), [&](auto size) { return size == wanted.front(); });
    call.expect((all_one(left) || all_one(right)) && uniform, "expected elements with the same size of dimension ", dim,
                ", got ", text_of_shapes(a.given), " and ", text_of_shapes(b.given));
    if (small.is_ragged(dim)) {  // all of size 1: static once the batch is plain
      call.expect(small.layout.structure->ragged->rank() == 1, "expected elements with the same size of dimension ",
                  dim, ", got ", text_of_shapes(a.given), " and ", text_of_shapes(b.given));
      std::vector<std::int64_t> full = {batch};
      for (std::int64_t at = 0; at < small.rank; ++at) {
        full.push_back(at == dim ? 1 : small.size(at));
      }
      small.values = small.values.reshape(full);
      small.layout = {};
    }
    auto sizes = small.values.sizes().vec();
    const std::int64_t at = small.layout.structure ? small.layout.structure->values_dim(dim) : dim + 1;
    sizes[static_cast<std::size_t>(at)] = wanted.front();
    small.values = small.values.expand(sizes);
  }
}

at::Tensor multiply_elements(Call& call, Factor a, Factor b) {
  call.expect(a.rank == b.rank && a.rank >= 2, "expected elements of the same rank, 2 or above, got ",
              text_of_shapes(a.given), " and ", text_of_shapes(b.given));
  const std::int64_t rank = a.rank, row = rank - 2, column = rank - 1;
  const Structure& like = a.layout.structure ? *a.layout.structure : *b.layout.structure;
  const std::int64_t batch = like.batch();
  const bool both = a.layout.structure && b.layout.structure;
  call.expect(!both || b.layout.structure->batch() == batch, "expected as many elements, got ", batch, " and ",
              both ? b.layout.structure->batch() : 0, ": ", text_of_shapes(a.given), " and ", text_of_shapes(b.given));
  broadcast_factors(call, a, b, batch);
  call.expect(a.sizes(column, batch) == b.sizes(row, batch),
              "expected the columns of the first elements to be the rows of the second, got ", text_of_shapes(a.given),
              " and ", text_of_shapes(b.given),
              both ? ""
                   : "; with a ragged dimension, convert a padded tensor with nested_like() or "
                     "from_tensor_mask()");
  // Dimensions of the result: rows from the first factor, columns from the second, the rest from either.
  std::vector<const Factor*> from(static_cast<std::size_t>(rank), a.layout.structure ? &a : &b);
  from[static_cast<std::size_t>(row)] = &a;
  from[static_cast<std::size_t>(column)] = &b;
  Structure structure = like;
  structure.ragged_dims.clear();
  std::vector<std::vector<std::int64_t>> ragged;
  std::vector<std::int64_t> sizes = {0}, plain = {batch};
  for (std::int64_t dim = 0; dim < rank; ++dim) {
    const Factor& owner = *from[static_cast<std::size_t>(dim)];
    if (owner.is_ragged(dim)) {
      structure.ragged_dims.push_back(dim);
      ragged.push_back(owner.sizes(dim, batch));
    } else {
      sizes.push_back(owner.size(dim));
      plain.push_back(owner.size(dim));
    }
  }
  if (ragged.empty()) {  // a plain batch of matrices
    return product(a.values, a.layout, b.values, b.layout, {}, plain, batch);
  }
  const auto same_as = [&](const Factor& factor) {
    return factor.layout.structure && factor.layout.structure->ragged_dims == structure.ragged_dims &&
           std::all_of(structure.ragged_dims.begin(), structure.ragged_dims.end(), [&](std::int64_t dim) {
             return factor.sizes(dim, batch) == ragged[structure.ragged_index(dim)];
           });
  };
  if (same_as(a)) {
    structure.ragged = a.layout.structure->ragged;
  } else if (same_as(b)) {
    structure.ragged = b.layout.structure->ragged;
  } else {
    const auto make = [&]() -> RaggedPtr {
      std::vector<std::int64_t> all;
      for (std::int64_t element = 0; element < batch; ++element) {
        for (const auto& one : ragged) {
          all.push_back(one[static_cast<std::size_t>(element)]);
        }
      }
      return std::make_shared<Ragged>(batch, ragged.size(), std::move(all));
    };
    const bool squares = both && ragged.size() == 2 && a.layout.structure->ragged->rank() == 1 &&
                         a.layout.structure->ragged == b.layout.structure->ragged;
    structure.ragged = squares ? a.layout.structure->ragged->related(Ragged::square, make) : make();
  }
  sizes[0] = structure.ragged->rows();
  const auto multiply = [a_layout = a.layout, b_layout = b.layout, structure, sizes, batch](const at::Tensor& left,
                                                                                            const at::Tensor& right) {
    return product(left, a_layout, right, b_layout, {structure}, sizes, batch);
  };
  if (auto scores = defer_scores(a.values, a.layout, b.values, b.layout, structure, sizes, multiply)) {
    return std::move(*scores);
  }
  return wrap(multiply(a.values, b.values), structure);
}

/// True if the last two dimensions of all elements are static and the others equal: one product of all rows.
bool is_per_row(const NestedTensorImpl& a, const NestedTensorImpl& b) {
  const auto last_static = [](const NestedTensorImpl& one) {
    const std::int64_t rank = one.element_rank();
    return rank >= 3 && !one.structure().is_ragged(rank - 1) && !one.structure().is_ragged(rank - 2);
  };
  return last_static(a) && last_static(b) && a.structure().matches(b.structure()) &&
         a.element_rank() == b.element_rank();
}

/// True if all elements have this size: then they are features of whole sequences, marked ragged only because all sizes
/// in the batch are equal.
bool has_sizes(const NestedTensorImpl& vectors, std::int64_t size) {
  const auto& sizes = vectors.structure().ragged->all_sizes();
  return std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t own) { return own == size; });
}

at::Tensor multiply(Call& call, const at::Tensor& a, const at::Tensor& b) {
  const NestedTensorImpl *left = nested(a), *right = nested(b);
  if (left != nullptr && right == nullptr && (b.dim() == 1 || b.dim() == 2)) {  // one weight for all tokens
    const std::int64_t rank = left->element_rank();
    if (rank == 1 && left->structure().batch_first && left->structure().is_ragged(0) && has_sizes(*left, b.size(0))) {
      return at::matmul(values_of(a).reshape({left->structure().batch(), b.size(0)}), b);
    }
    call.expect(rank >= 1 && !left->structure().is_ragged(rank - 1) && left->size(left->dim() - 1) == b.size(0),
                "expected elements whose last dimension is static and as long as the matrix has rows, got elements ",
                text_of_shapes(*left), " and a matrix of shape (", join(b.sizes()), ")");
    return wrap(at::matmul(values_of(a), b), left->structure());
  }
  if (left != nullptr && right != nullptr && is_per_row(*left, *right)) {
    return wrap(at::matmul(values_of(a), values_of(b)), left->structure());
  }
  const NestedTensorImpl& some = left != nullptr ? *left : *right;
  Factor first = factor_of(call, a, some), second = factor_of(call, b, some);
  return multiply_elements(call, std::move(first), std::move(second));
}

void call_matmul(Call& call) {
  const at::Tensor self = call.tensor("self"), other = call.tensor("other");
  call.finish(multiply(call, self, other));
}

void call_bmm(Call& call) {
  const at::Tensor self = call.tensor("self"), other = call.tensor("mat2");
  call.expect(self.dim() == 3 && other.dim() == 3, "expected two batches of matrices, got shapes (", join(self.sizes()),
              ") and (", join(other.sizes()), ")");
  call.finish(multiply(call, self, other));
}

/// Tokens times a weight, or the gradient of a weight from TorchScript: columns of tokens times rows of tokens, one
/// product over the tokens of all elements.
void call_mm(Call& call) {
  const at::Tensor self = call.tensor("self"), other = call.tensor("mat2");
  const NestedTensorImpl *left = nested(self), *right = nested(other);
  if (left == nullptr || right == nullptr) {
    call.finish(multiply(call, self, other));
    return;
  }
  const auto is_ragged_at = [](const NestedTensorImpl& one, std::int64_t dim) {
    return one.element_rank() == 2 && one.structure().ragged_dims == c10::DimVector{dim};
  };
  call.expect(
      is_ragged_at(*left, 1) && is_ragged_at(*right, 0) && same(left->structure().ragged, right->structure().ragged),
      "expected columns and rows of the same lengths, got ", text_of_shapes(*left), " and ", text_of_shapes(*right));
  call.finish(at::mm(values_of(self).t(), values_of(other)));
}

/// Adds alpha times the product and beta times `self`.
void finish_sum(Call& call, at::Tensor product) {
  const at::Tensor self = call.tensor("self");
  const c10::Scalar beta = call["beta"].toScalar(), alpha = call["alpha"].toScalar();
  product = alpha.equal(1) ? product : product.mul(alpha);
  product = beta.equal(0) ? product : product.add(self, beta);
  if (!call.is_in_place()) {
    call.finish(product);
    return;
  }
  call.expect(nested(product) == nullptr ? nested(self) == nullptr : nested(self) != nullptr,
              "expected a tensor of the product's kind to change in place, got another, of shape (", join(self.sizes()),
              ")");
  call.finish(self.copy_(product));
}

at::Tensor product_of(Call& call, const char* first, const char* second) {
  const at::Tensor a = call.tensor(first), b = call.tensor(second);
  call.expect(nested(a) != nullptr || nested(b) != nullptr, "expected a NestedTensor as a factor, got one to add only");
  return multiply(call, a, b);
}

void call_baddbmm(Call& call) { finish_sum(call, product_of(call, "batch1", "batch2")); }

/// LibTorch accepts matrices only; here also tokens (batch, length, size) times a weight.
void call_addmm(Call& call) { finish_sum(call, product_of(call, "mat1", "mat2")); }

/// Adds the products of all elements: their rows and columns must be static.
void call_addbmm(Call& call) {
  const at::Tensor out = product_of(call, "batch1", "batch2");
  call.expect(nested(out) == nullptr, "expected elements whose products have one size, to add them, got ",
              text_of_shapes(out));
  finish_sum(call, out.sum(0));
}

}  // namespace

void add_matmul(OperatorTable& table) {
  table.add(Way::offsets, call_matmul, {"matmul"});
  table.add(Way::offsets, call_bmm, {"bmm"});
  table.add(Way::packed, call_mm, {"mm"});
  table.add(Way::offsets, call_baddbmm, {"baddbmm"});
  table.add(Way::offsets, call_addmm, {"addmm"});
  table.add(Way::offsets, call_addbmm, {"addbmm"});
}

}  // namespace danling::inline v0::detail
