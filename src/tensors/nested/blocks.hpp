// Packed values as a few batches: consecutive elements of equal sizes are one strided view.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {

/// Storage order of the elements in a tensor: packed, or, without a structure, a plain batch (batch, sizes...).
struct Layout {
  std::optional<Structure> structure;
  bool transposed = false;  ///< the last two dimensions of the elements are swapped in `block`

  Layout exchanged() const { return {structure, !transposed}; }
};

/// Returns a view (count, sizes...) of `count` elements of equal sizes, starting at `first`. Not differentiable.
at::Tensor block(const at::Tensor& values, const Layout& layout, std::int64_t first, std::int64_t count);
/// As `block`, with all dimensions before the last two merged: (n, rows, columns). Copies if no such view exists.
at::Tensor block_of_matrices(const at::Tensor& values, const Layout& layout, std::int64_t first, std::int64_t count);

/// Consecutive elements whose sizes are equal in all structures.
struct Run {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
std::vector<Run> runs_of_equal(std::int64_t batch, const std::vector<const Structure*>& structures);

/// Calls the function for each run, on several threads if the values are on the CPU and the work is large enough.
/// `work` returns the work of a run, for load balancing. Disables autograd inside. Rethrows an exception of the
/// function.
void each_run_in_parallel(const std::vector<Run>& runs, bool on_cpu, const std::function<double(const Run&)>& work,
                          const std::function<void(const Run&)>& run);

}  // namespace danling::inline v0::detail
