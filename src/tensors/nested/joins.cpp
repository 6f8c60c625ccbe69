// Joins of several tensors: cat, stack and similar. Along a ragged dimension, lengths add up per sequence.
#include <algorithm>
#include <optional>

#include <ATen/ops/cat.h>

#include <tensors/nested/operators.hpp>
#include <tensors/nested/rows.hpp>
#include <tensors/nested/shapes.hpp>

namespace danling::inline v0::detail {
namespace {

at::Tensor cat_batches(Call& call, const std::vector<at::Tensor>& parts) {
  const NestedTensorImpl& first = *nested(parts.front());
  bool alike = true;
  std::vector<at::Tensor> values;
  std::vector<std::int64_t> sizes;
  std::int64_t batch = 0;
  for (const at::Tensor& part : parts) {
    const NestedTensorImpl& impl = *nested(part);
    call.expect(impl.element_rank() == first.element_rank(), "expected elements of one rank, got ",
                text_of_shapes(first), " and ", text_of_shapes(impl));
    call.expect(impl.structure().batch_first == first.structure().batch_first, "expected tensors of one order of ",
                "dimensions, got batch_first true and false");
    alike = alike && impl.structure().ragged_dims == first.structure().ragged_dims &&
            impl.values().sizes().slice(1) == first.values().sizes().slice(1);
    values.push_back(values_of(part));
    const auto& own = impl.structure().ragged->all_sizes();
    sizes.insert(sizes.end(), own.begin(), own.end());
    batch += impl.structure().batch();
  }
  if (alike) {
    Structure structure = first.structure();
    structure.ragged = std::make_shared<Ragged>(batch, first.structure().ragged->rank(), std::move(sizes));
    return wrap(at::cat(values), std::move(structure));
  }
  std::vector<at::Tensor> elements;
  for (const at::Tensor& part : parts) {
    const auto own = elements_of(part);
    elements.insert(elements.end(), own.begin(), own.end());
  }
  return nest(elements, first.structure());
}

at::Tensor cat_ragged(Call& call, const std::vector<at::Tensor>& parts, std::int64_t dim) {
  const NestedTensorImpl& first = *nested(parts.front());
  Structure structure = first.structure();
  const std::size_t along = structure.ragged_index(dim), rank = structure.ragged->rank();
  std::vector<at::Tensor> values;
  std::vector<std::int64_t> begins, rows, sizes;
  std::int64_t begin = 0;
  for (const at::Tensor& part : parts) {
    const NestedTensorImpl& impl = *nested(part);
    bool fits = impl.structure().ragged_dims == structure.ragged_dims &&
                impl.structure().batch() == structure.batch() && impl.structure().batch_first == structure.batch_first;
    for (std::size_t at = 0; fits && at < structure.ragged->all_sizes().size(); ++at) {
      fits = at % rank == along || impl.structure().ragged->all_sizes()[at] == structure.ragged->all_sizes()[at];
    }
    call.expect(fits, "expected elements that differ along dimension ", structure.tensor_dim(dim, first.element_rank()),
                " only, got ", text_of_shapes(first), " and ", text_of_shapes(impl), text_of_layouts(first, impl));
    values.push_back(values_of(part));
    begins.push_back(begin);
    begin += impl.structure().ragged->rows();
  }
  for (std::int64_t element = 0; element < structure.batch(); ++element) {
    const auto own = structure.ragged->sizes(element);
    std::int64_t outer = 1, inner = 1, length = 0;
    for (std::size_t at = 0; at < rank; ++at) {
      (at < along ? outer : inner) *= at == along ? 1 : own[at];
    }
    for (std::int64_t i = 0; i < outer; ++i) {
      for (std::size_t part = 0; part < parts.size(); ++part) {
        const Ragged& ragged = *nested(parts[part])->structure().ragged;
        const std::int64_t count = ragged.sizes(element)[along] * inner;
        for (std::int64_t j = 0; j < count; ++j) {
          rows.push_back(begins[part] + ragged.begin(element) + i * count + j);
        }
      }
    }
    for (const at::Tensor& part : parts) {
      length += nested(part)->structure().ragged->sizes(element)[along];
    }
    for (std::size_t at = 0; at < rank; ++at) {
      sizes.push_back(at == along ? length : own[at]);
    }
  }
  structure.ragged = std::make_shared<Ragged>(structure.batch(), rank, std::move(sizes));
  return wrap(permute_rows(at::cat(values), rows), std::move(structure));
}

at::Tensor cat_static(Call& call, const std::vector<at::Tensor>& parts, std::int64_t dim) {
  const NestedTensorImpl& first = *nested(parts.front());
  std::vector<at::Tensor> values;
  for (const at::Tensor& part : parts) {
    const NestedTensorImpl& impl = *nested(part);
    call.expect(impl.structure().matches(first.structure()), "expected NestedTensors of the same ragged sizes, got ",
                text_of_shapes(first), " and ", text_of_shapes(impl), text_of_layouts(first, impl));
    values.push_back(values_of(part));
  }
  return wrap(at::cat(values, first.structure().values_dim(dim)), first.structure());
}

at::Tensor cat(Call& call, const std::vector<at::Tensor>& tensors, std::int64_t dim) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) { return nested(tensor) != nullptr; });
  call.expect(found != tensors.end(), "expected a NestedTensor among the tensors, got none");
  const at::Tensor model = *found;
  const NestedTensorImpl& impl = *nested(model);
  const auto element_dim = impl.structure().element_dim(wrapped_dim(call, model, dim), impl.element_rank());
  const bool over_static = element_dim && !impl.structure().is_ragged(*element_dim);
  std::vector<at::Tensor> parts;
  for (const at::Tensor& tensor : tensors) {
    if (nested(tensor) != nullptr) {
      parts.push_back(tensor);
      continue;
    }
    call.expect(tensor.dim() == model.dim(), "expected tensors of ", model.dim(), " dimensions as the elements ",
                text_of_shapes(impl), " have with their batch, got one of shape (", join(tensor.sizes()), ")");
    if (!over_static) {
      parts.push_back(nest_padded(call, tensor, impl.structure()));
      continue;
    }
    for (std::int64_t at = 0; at < model.dim(); ++at) {
      call.expect(at == wrapped_dim(call, model, dim) || tensor.size(at) == model.size(at),
                  "expected a tensor of the padded shape (", join(model.sizes()), ") but for dimension ", dim,
                  ", got (", join(tensor.sizes()), ")");
    }
    parts.push_back(wrap(pack(tensor, impl.structure()), impl.structure()));
  }
  return !element_dim  ? cat_batches(call, parts)
         : over_static ? cat_static(call, parts, *element_dim)
                       : cat_ragged(call, parts, *element_dim);
}

void call_cat(Call& call) { call.finish(cat(call, call.tensors("tensors"), call.integer("dim"))); }

void call_stack(Call& call) {
  std::vector<at::Tensor> tensors = call.tensors("tensors");
  const std::int64_t dim = wrapped_dim(call, tensors.front(), call.integer("dim"), true);
  for (const at::Tensor& tensor : tensors) {
    const NestedTensorImpl* impl = nested(tensor);
    call.expect(impl == nullptr || dim > impl->structure().batch_dim(impl->element_rank()),
                "expected a dimension after the batch, got ", call.integer("dim"),
                ": a NestedTensor has one batch dimension; cat(tensors, ",
                impl == nullptr ? 0 : impl->structure().batch_dim(impl->element_rank()),
                ") puts the elements of all into one");
  }
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.unsqueeze(dim);
  }
  call.finish(cat(call, tensors, dim));
}

}  // namespace

at::Tensor nest_padded(Call& call, const at::Tensor& tensor, const Structure& like) {
  Structure structure = like;
  const std::int64_t rank = tensor.dim() - 1;
  const std::int64_t batch = tensor.size(structure.batch_dim(rank));
  std::vector<std::int64_t> sizes;
  for (std::int64_t element = 0; element < batch; ++element) {
    for (const std::int64_t dim : structure.ragged_dims) {
      call.expect(dim < rank, "expected a tensor with the ragged dimensions of the others, got one of shape (",
                  join(tensor.sizes()), ")");
      sizes.push_back(tensor.size(structure.tensor_dim(dim, rank)));
    }
  }
  structure.ragged = std::make_shared<Ragged>(batch, structure.ragged_dims.size(), std::move(sizes));
  return wrap(pack(tensor, structure), structure);
}

void add_joins(OperatorTable& table) {
  table.add(Way::offsets, call_cat, {"cat", "concat", "concatenate", "_cat"});
  table.add(Way::offsets, call_stack, {"stack", "_stack"});
  table.add(Way::offsets, call_composite, {"hstack", "vstack", "row_stack", "dstack", "column_stack"});
}

}  // namespace danling::inline v0::detail
