#include <tensors/nested/blocks.hpp>

#include <algorithm>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/as_strided.h>

namespace danling::inline v0::detail {

at::Tensor block(const at::Tensor& values, const Layout& layout, std::int64_t first, std::int64_t count) {
  c10::DimVector sizes = {count}, strides;
  std::int64_t offset = values.storage_offset();
  if (!layout.structure) {
    sizes.insert(sizes.end(), values.sizes().begin() + 1, values.sizes().end());
    strides.assign(values.strides().begin(), values.strides().end());
    offset += first * values.stride(0);
  } else {
    const Structure& structure = *layout.structure;
    const Ragged& ragged = *structure.ragged;
    const auto own = ragged.sizes(first);
    offset += ragged.begin(first) * values.stride(0);
    strides.push_back(ragged.rows_of(first) * values.stride(0));
    const std::int64_t rank = structure.element_rank(values.dim());
    for (std::int64_t dim = 0, at = 1; dim < rank; ++dim) {
      if (!structure.is_ragged(dim)) {
        sizes.push_back(values.size(at));
        strides.push_back(values.stride(at++));
        continue;
      }
      const std::size_t index = structure.ragged_index(dim);
      std::int64_t stride = values.stride(0);
      for (std::size_t later = index + 1; later < own.size(); ++later) {
        stride *= own[later];
      }
      sizes.push_back(own[index]);
      strides.push_back(stride);
    }
  }
  if (layout.transposed) {
    std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
    std::swap(strides[strides.size() - 1], strides[strides.size() - 2]);
  }
  return at::as_strided(values, sizes, strides, offset);
}

at::Tensor block_of_matrices(const at::Tensor& values, const Layout& layout, std::int64_t first, std::int64_t count) {
  const at::Tensor full = block(values, layout, first, count);
  if (full.dim() == 3) {
    return full;
  }
  const auto sizes = full.sizes();
  const std::int64_t matrices = std::accumulate(sizes.begin(), sizes.end() - 2, std::int64_t{1}, std::multiplies<>());
  return full.reshape({matrices, full.size(-2), full.size(-1)});
}

std::vector<Run> runs_of_equal(std::int64_t batch, const std::vector<const Structure*>& structures) {
  std::vector<Run> out;
  for (std::int64_t element = 0; element < batch; ++element) {
    const bool equal = !out.empty() && std::all_of(structures.begin(), structures.end(), [&](const Structure* one) {
      const auto before = one->ragged->sizes(element - 1), own = one->ragged->sizes(element);
      return std::equal(own.begin(), own.end(), before.begin());
    });
    if (equal) {
      ++out.back().count;
    } else {
      out.push_back({element, 1});
    }
  }
  return out;
}

void each_run_in_parallel(const std::vector<Run>& runs, bool on_cpu, const std::function<double(const Run&)>& work,
                          const std::function<void(const Run&)>& run) {
  constexpr double worth_a_thread = 1 << 18;
  const std::int64_t threads = on_cpu && !at::in_parallel_region() ? at::get_num_threads() : 1;
  double total = 0;
  std::vector<double> until;  // cumulative work up to and including each run
  for (const Run& one : runs) {
    until.push_back(total += work(one));
  }
  const auto parts = static_cast<std::int64_t>(std::min<double>(static_cast<double>(threads), total / worth_a_thread));
  if (parts <= 1) {
    const at::AutoDispatchBelowADInplaceOrView below;
    std::for_each(runs.begin(), runs.end(), run);
    return;
  }
  const auto first_of = [&](std::int64_t part) {
    const double share = total * static_cast<double>(part) / static_cast<double>(parts);
    return part == parts ? runs.end()
                         : runs.begin() + (std::lower_bound(until.begin(), until.end(), share) - until.begin());
  };
  at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView below;  // dispatch state of this thread
    for (std::int64_t part = begin; part < end; ++part) {
      std::for_each(part == 0 ? runs.begin() : first_of(part), first_of(part + 1), run);
    }
  });
}

}  // namespace danling::inline v0::detail
