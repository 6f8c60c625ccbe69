#include <tensors/nested/along.hpp>

#include <algorithm>
#include <utility>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <tensors/nested/rows.hpp>

namespace danling::inline v0::detail {
namespace {

/// Wraps rows gathered from `tensor`; in-place changes of the result also change `tensor`.
at::Tensor wrap_rows(const at::Tensor& tensor, at::Tensor values, Structure structure,
                     const std::vector<std::int64_t>& rows) {
  at::Tensor out = wrap(std::move(values), std::move(structure));
  nested(out)->write_back = [tensor, rows](const at::Tensor& changed) {
    expect_changeable(tensor, "view");
    at::Tensor whole = values_of(tensor);
    whole.index_copy_(0, row_index(rows, whole.device()), changed);
    replace_values(tensor, whole);
  };
  return out;
}

}  // namespace

at::Tensor take_elements(const at::Tensor& tensor, const std::vector<std::int64_t>& elements) {
  Structure structure = nested(tensor)->structure();
  const Ragged& ragged = *structure.ragged;
  std::vector<std::int64_t> sizes;
  bool neighbours = true;
  for (std::size_t at = 0; at < elements.size(); ++at) {
    const auto own = ragged.sizes(elements[at]);
    sizes.insert(sizes.end(), own.begin(), own.end());
    neighbours = neighbours && elements[at] == elements[0] + static_cast<std::int64_t>(at);
  }
  const at::Tensor values = values_of(tensor);
  structure.ragged =
      std::make_shared<Ragged>(static_cast<std::int64_t>(elements.size()), ragged.rank(), std::move(sizes));
  if (neighbours) {
    const std::int64_t begin = elements.empty() ? 0 : ragged.begin(elements[0]);
    const std::int64_t count = structure.ragged->rows();
    return wrap(values.narrow(0, begin, count), std::move(structure));
  }
  std::vector<std::int64_t> rows;
  for (const std::int64_t element : elements) {
    for (std::int64_t row = ragged.begin(element); row < ragged.begin(element + 1); ++row) {
      rows.push_back(row);
    }
  }
  return wrap_rows(tensor, take_rows(values, rows), std::move(structure), rows);
}

at::Tensor take_positions(const at::Tensor& tensor, std::int64_t element_dim, const std::vector<std::int64_t>& counts,
                          const Positions& positions, std::optional<double> fill) {
  Structure structure = nested(tensor)->structure();
  const RaggedPtr ragged = structure.ragged;
  const std::size_t along = structure.ragged_index(element_dim);
  std::vector<std::int64_t> rows, sizes;
  bool same_sizes = true;
  for (std::int64_t element = 0; element < ragged->batch(); ++element) {
    const auto own = ragged->sizes(element);
    const std::int64_t count = counts[static_cast<std::size_t>(element)];
    std::int64_t outer = 1, inner = 1;
    for (std::size_t dim = 0; dim < own.size(); ++dim) {
      sizes.push_back(dim == along ? count : own[dim]);
      (dim < along ? outer : inner) *= dim == along ? 1 : own[dim];
    }
    same_sizes = same_sizes && count == own[along];
    for (std::int64_t i = 0; i < outer; ++i) {
      for (std::int64_t position = 0; position < count; ++position) {
        const std::int64_t from = positions(element, position);
        for (std::int64_t j = 0; j < inner; ++j) {
          rows.push_back(from < 0 ? ragged->rows() : ragged->begin(element) + (i * own[along] + from) * inner + j);
        }
      }
    }
  }
  if (!same_sizes) {
    structure.ragged = std::make_shared<Ragged>(ragged->batch(), ragged->rank(), std::move(sizes));
  }
  at::Tensor values = values_of(tensor);
  if (!fill) {
    return wrap_rows(tensor, take_rows(values, rows), std::move(structure), rows);
  }
  auto row_sizes = values.sizes().vec();
  row_sizes[0] = 1;
  return wrap(take_rows(at::cat({values, at::full(row_sizes, *fill, values.options())}), rows), std::move(structure));
}

at::Tensor copy_positions(const at::Tensor& tensor, std::int64_t element_dim, const std::vector<std::int64_t>& counts,
                          const Positions& positions) {
  at::Tensor out = take_positions(tensor, element_dim, counts, positions);
  nested(out)->write_back = nullptr;
  return out;
}

at::Tensor write_through(at::Tensor out, const at::Tensor& tensor,
                         std::function<at::Tensor(const at::Tensor&)> arrange) {
  NestedTensorImpl& impl = *nested(out);
  if (impl.values().is_alias_of(nested(tensor)->values())) {
    return out;
  }
  impl.write_back = [tensor, arrange = std::move(arrange)](const at::Tensor& changed) {
    expect_changeable(tensor, "view");
    const at::Tensor whole = values_of(tensor);
    const at::Tensor places = at::arange(whole.numel(), whole.options().dtype(at::kLong).requires_grad(false));
    const at::Tensor arranged = values_of(arrange(wrap(places.view(whole.sizes()), nested(tensor)->structure())));
    const at::Tensor flat = whole.reshape(-1).index_copy(0, arranged.reshape(-1), changed.reshape(-1));
    at::Tensor own = values_of(tensor);
    own.copy_(flat.view(own.sizes()));
    replace_values(tensor, std::move(own));
  };
  return out;
}

at::Tensor own_copy(const at::Tensor& out, const at::Tensor& tensor) {
  if (nested(out)->values().is_alias_of(nested(tensor)->values())) {
    return wrap(values_of(out).clone(), nested(out)->structure());
  }
  nested(out)->write_back = nullptr;
  return out;
}

std::vector<std::int64_t> sizes_along(const Structure& structure, std::int64_t element_dim) {
  std::vector<std::int64_t> out;
  for (std::int64_t element = 0; element < structure.batch(); ++element) {
    out.push_back(structure.ragged->sizes(element)[structure.ragged_index(element_dim)]);
  }
  return out;
}

Span span_of(std::int64_t size, std::optional<std::int64_t> start, std::optional<std::int64_t> end, std::int64_t step) {
  const auto within = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size); };
  const std::int64_t begin = within(start.value_or(0)), stop = std::max(begin, within(end.value_or(size)));
  return {begin, (stop - begin + step - 1) / step};
}

}  // namespace danling::inline v0::detail
