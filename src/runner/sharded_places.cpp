// Positions of a rank's rows and slices in whole parameters.
#include <algorithm>

#include <runner/sharded_parallel.hpp>

namespace danling::inline v0::detail {

bool ShardedParallel::can_gather_full_state() const {
  const ParallelTopology& topology = context_.topology();
  return topology.domain_degree("fsdp") == topology.world_size();
}

void ShardedParallel::parameters_changed() {
  for (Sharded& sharded : models_) {
    sharded.model->update_parameters();
    sharded.is_stale = false;
  }
}

bool ShardedParallel::has_whole_parameters() const {
  const bool has_rows = splits_parameters() || options_.offload_policy || options_.mp_policy.param_dtype;
  return options_.stage < 3 || !has_rows;
}

std::optional<TensorShard> ShardedParallel::shard_of(const at::Tensor& parameter) const {
  const auto slices = parallel::slices_of(parameter);
  const at::Tensor rows = ShardedModel::to_local(parameter);
  if (parameter.dim() == 0 || (slices.empty() && rows.is_same(parameter))) {
    return std::nullopt;
  }
  TensorShard out{parameter.sizes().vec(), std::vector<std::int64_t>(static_cast<std::size_t>(parameter.dim()), 0),
                  rows.sizes().vec()};
  for (const parallel::Slice& slice : slices) {
    out.sizes[static_cast<std::size_t>(slice.dim)] = slice.size;
    out.offsets[static_cast<std::size_t>(slice.dim)] = slice.offset;
  }
  if (!rows.is_same(parameter)) {
    out.offsets[0] += models_.front().model->row_range(parameter.size(0)).first;
  }
  return out;
}

}  // namespace danling::inline v0::detail
