// Packed values as a few batches: elements of equal sizes that follow one another are one strided view.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tensors/nested/impl.hpp"

namespace danling::inline v0::detail {

/// How one tensor holds the elements: packed, or, without a structure, as a plain batch (batch, sizes...).
struct Layout {
  std::optional<Structure> structure;
  bool transposed = false;  ///< whether the last two dimensions of the elements are exchanged in `block`

  Layout exchanged() const { return {structure, !transposed}; }
};

/// `count` elements from `first` on, whose sizes are equal: (count, sizes...), a view. Not differentiable.
at::Tensor block(const at::Tensor& values, const Layout& layout, std::int64_t first, std::int64_t count);
/// The same with all dimensions before the last two in one: (n, rows, columns). A copy where no view can be that.
at::Tensor block_of_matrices(const at::Tensor& values, const Layout& layout, std::int64_t first, std::int64_t count);

/// Consecutive elements whose sizes are equal, in all structures at once.
struct Run {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
std::vector<Run> runs_of_equal(std::int64_t batch, const std::vector<const Structure*>& structures);

/// Calls the function for each run, on several threads where the values are on the CPU and the work is worth them.
/// `work`: of a run, to share them out. Autograd is off within. An exception of the function is thrown here.
void each_run_in_parallel(const std::vector<Run>& runs, bool on_cpu, const std::function<double(const Run&)>& work,
                          const std::function<void(const Run&)>& run);

}  // namespace danling::inline v0::detail
