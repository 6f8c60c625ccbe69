// Conversion between packed values and padded tensors.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Holds a structure as a variable that an autograd function saves.
struct Holder : torch::CustomClassHolder {
  explicit Holder(RaggedPtr kept) : ragged(std::move(kept)) {}
  RaggedPtr ragged;
};

std::int64_t row_bytes(const at::Tensor& rows) {
  return rows.size(0) == 0 ? 0 : static_cast<std::int64_t>(rows.nbytes()) / rows.size(0);
}

/// Calls `copy(padded row, row, count)` for each run of rows that are adjacent in both.
template <class Copy>
void each_run(const Ragged& ragged, const Copy& copy) {
  if (ragged.rank() <= 1) {
    at::parallel_for(0, ragged.batch(), 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t element = begin; element < end; ++element) {
        copy(element * ragged.padded_rows(), ragged.begin(element), ragged.rows_of(element));
      }
    });
    return;
  }
  const at::Tensor places = ragged.padded_places_on(at::kCPU);
  const std::int64_t* place = places.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0, next = 0; row < ragged.rows(); row = next) {
    for (next = row + 1; next < ragged.rows() && place[next] == place[next - 1] + 1;) {
      ++next;
    }
    copy(place[row], row, next - row);
  }
}

/// Requests huge pages for a large new tensor: page faults of small pages take most of the first write's time. No
/// effect if the system has none.
void advise_huge_pages(const at::Tensor& fresh) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t page = std::uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<std::uintptr_t>(fresh.const_data_ptr()), end = begin + fresh.nbytes();
  const std::uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) {
    ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
#endif
}

/// (rows, ...) -> (batch * longest, ...) for one ragged dimension on the CPU: writes each byte once.
at::Tensor spread_sequences(const at::Tensor& values, const Ragged& ragged, double fill) {
  auto sizes = values.sizes().vec();
  sizes[0] = 1;
  const at::Tensor padding = at::full(sizes, fill, values.options()), from = readable(values);
  sizes[0] = ragged.batch() * ragged.padded_rows();
  at::Tensor out = at::empty(sizes, values.options());
  advise_huge_pages(out);
  const std::int64_t bytes = row_bytes(from), longest = ragged.padded_rows();
  auto* write = static_cast<char*>(out.mutable_data_ptr());
  const auto* read = static_cast<const char*>(from.const_data_ptr());
  const auto* filler = static_cast<const char*>(padding.const_data_ptr());
  at::parallel_for(0, ragged.batch(), 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t element = begin; element < end; ++element) {
      char* to = write + element * longest * bytes;
      const std::int64_t own = ragged.rows_of(element) * bytes, rest = longest * bytes - own;
      std::memcpy(to, read + ragged.begin(element) * bytes, static_cast<std::size_t>(own));
      if (fill == 0) {
        std::memset(to + own, 0, static_cast<std::size_t>(rest));
        continue;
      }
      for (std::int64_t at = 0; at < rest; at += bytes) {
        std::memcpy(to + own + at, filler, static_cast<std::size_t>(bytes));
      }
    }
  });
  return out;
}

/// (rows, ...) -> (batch * padded rows, ...).
at::Tensor spread(const at::Tensor& values, const Ragged& ragged, double fill) {
  if (values.is_cpu() && ragged.rank() == 1 && values.numel() > 0) {
    return spread_sequences(values, ragged, fill);
  }
  auto sizes = values.sizes().vec();
  sizes[0] = ragged.batch() * ragged.padded_rows();
  at::Tensor out = fill == 0 ? at::zeros(sizes, values.options()) : at::full(sizes, fill, values.options());
  if (values.numel() == 0) {
    return out;
  }
  if (!values.is_cpu()) {
    return out.index_copy_(0, ragged.padded_places_on(values.device()), values);
  }
  const at::Tensor from = readable(values);
  const std::int64_t bytes = row_bytes(from);
  auto* write = static_cast<char*>(out.mutable_data_ptr());
  const auto* read = static_cast<const char*>(from.const_data_ptr());
  each_run(ragged, [&](std::int64_t padded, std::int64_t row, std::int64_t count) {
    std::memcpy(write + padded * bytes, read + row * bytes, static_cast<std::size_t>(count * bytes));
  });
  return out;
}

/// (batch * padded rows, ...) -> (rows, ...).
at::Tensor gather(const at::Tensor& padded, const Ragged& ragged) {
  if (!padded.is_cpu()) {
    return padded.index_select(0, ragged.padded_places_on(padded.device()));
  }
  auto sizes = padded.sizes().vec();
  sizes[0] = ragged.rows();
  at::Tensor out = at::empty(sizes, padded.options());
  if (out.numel() == 0) {
    return out;
  }
  const at::Tensor from = readable(padded);
  const std::int64_t bytes = row_bytes(from);
  auto* write = static_cast<char*>(out.mutable_data_ptr());
  const auto* read = static_cast<const char*>(from.const_data_ptr());
  each_run(ragged, [&](std::int64_t place, std::int64_t row, std::int64_t count) {
    std::memcpy(write + row * bytes, read + place * bytes, static_cast<std::size_t>(count * bytes));
  });
  return out;
}

// Each is the gradient of the other.
struct Spread : torch::autograd::Function<Spread> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values,
                            const c10::intrusive_ptr<Holder>& holder, double fill);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};
struct Gather : torch::autograd::Function<Gather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& padded,
                            const c10::intrusive_ptr<Holder>& holder);
  static variable_list backward(AutogradContext* context, variable_list gradients);
};

at::Tensor Spread::forward(AutogradContext* context, const at::Tensor& values, const c10::intrusive_ptr<Holder>& holder,
                           double fill) {
  context->saved_data["holder"] = c10::IValue::make_capsule(holder);
  return spread(values, *holder->ragged, fill);
}
variable_list Spread::backward(AutogradContext* context, variable_list gradients) {
  const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["holder"].toCapsule());
  return {Gather::apply(gradients[0], holder), at::Tensor(), at::Tensor()};
}
at::Tensor Gather::forward(AutogradContext* context, const at::Tensor& padded,
                           const c10::intrusive_ptr<Holder>& holder) {
  context->saved_data["holder"] = c10::IValue::make_capsule(holder);
  return gather(padded, *holder->ragged);
}
variable_list Gather::backward(AutogradContext* context, variable_list gradients) {
  const auto holder = c10::static_intrusive_pointer_cast<Holder>(context->saved_data["holder"].toCapsule());
  return {Spread::apply(gradients[0], holder, 0.0), at::Tensor()};
}

/// Returns the order of the padded tensor's dimensions in the rows: batch, ragged, static.
c10::DimVector order_of_rows(const Structure& structure, std::int64_t element_rank) {
  c10::DimVector order = {structure.batch_dim(element_rank)};
  for (const bool ragged : {true, false}) {
    for (std::int64_t dim = 0; dim < element_rank; ++dim) {
      if (structure.is_ragged(dim) == ragged) {
        order.push_back(structure.tensor_dim(dim, element_rank));
      }
    }
  }
  return order;
}

}  // namespace

at::Tensor pad(const at::Tensor& values, const Structure& structure, double fill) {
  const std::int64_t rank = structure.element_rank(values.dim());
  const bool differentiable = c10::GradMode::is_enabled() && values.requires_grad();
  at::Tensor out = differentiable ? Spread::apply(values, c10::make_intrusive<Holder>(structure.ragged), fill)
                                  : spread(values, *structure.ragged, fill);
  c10::DimVector sizes = {structure.batch()};
  const auto& longest = structure.ragged->longest();
  sizes.insert(sizes.end(), longest.begin(), longest.end());
  sizes.insert(sizes.end(), values.sizes().begin() + 1, values.sizes().end());
  const c10::DimVector order = order_of_rows(structure, rank);
  c10::DimVector inverse(order.size());
  for (std::size_t at = 0; at < order.size(); ++at) {
    inverse[static_cast<std::size_t>(order[at])] = static_cast<std::int64_t>(at);
  }
  return out.view(sizes).permute(inverse);
}

at::Tensor pack(const at::Tensor& padded, const Structure& structure) {
  const std::int64_t rank = padded.dim() - 1;
  at::Tensor rows = padded.permute(order_of_rows(structure, rank));
  c10::DimVector sizes = {structure.batch() * structure.ragged->padded_rows()};
  sizes.insert(sizes.end(), rows.sizes().begin() + 1 + static_cast<std::ptrdiff_t>(structure.ragged->rank()),
               rows.sizes().end());
  rows = rows.reshape(sizes);
  return c10::GradMode::is_enabled() && padded.requires_grad()
             ? Gather::apply(rows, c10::make_intrusive<Holder>(structure.ragged))
             : gather(rows, *structure.ragged);
}

}  // namespace danling::inline v0::detail
