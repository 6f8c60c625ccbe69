#include <parallel/tensor_slices.hpp>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>
#include <danling/parallel/slices.hpp>

#include <parallel/sharded_parameters.hpp>

namespace danling::inline v0::detail {

std::int64_t part_offset(const std::vector<std::int64_t>& sizes, int rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
}

void slice_parameter(const at::Tensor& parameter, std::string_view name, const Group& group, std::string_view axis,
                     std::int64_t dim, const std::vector<std::int64_t>& sizes) {
  static constexpr std::string_view where = "parallel.parallelize";
  const std::int64_t offset = part_offset(sizes, group.rank());
  const std::int64_t count = sizes.at(static_cast<std::size_t>(group.rank()));
  const std::int64_t whole = part_offset(sizes, group.size());
  auto slices = parallel::slices_of(parameter);
  const auto known = std::find_if(slices.begin(), slices.end(), [&](const auto& slice) { return slice.axis == axis; });
  if (known != slices.end()) {
    check<StateError>(
        known->dim == dim && known->size == whole && known->offset == offset && parameter.size(dim) == count, where,
        "expected a parameter that is whole, or sliced along dimension ", dim, " of ", whole, " values, got ",
        quote(name), " sliced along dimension ", known->dim, " of ", known->size, " over ", axis, " already");
    return;
  }
  check<StateError>(!is_sharded(parameter), where, "expected a parameter that no ShardedModel has, got ", quote(name),
                    "; slice the model before it is sharded");
  const at::NoGradGuard no_grad;
  at::Tensor values = parameter.detach();
  group.broadcast(values, 0);
  const at::Tensor part = values.narrow(dim, offset, count).clone(at::MemoryFormat::Contiguous);
  parameter.set_data(part);
  parameter.mutable_grad().reset();
  slices.push_back({std::string(axis), dim, whole, offset});
  parallel::set_slices(parameter, std::move(slices));
}

}  // namespace danling::inline v0::detail
