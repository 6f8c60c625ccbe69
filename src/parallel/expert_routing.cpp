#include <parallel/expert_routing.hpp>

#include <numeric>
#include <optional>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <parallel/expert_axis.hpp>
#include <tensors/raw.hpp>

namespace danling::inline v0::parallel::expert_routing {
namespace {

/// Exclusive prefix sums along the last dimension.
at::Tensor sums_before(const at::Tensor& values) { return values.cumsum(-1) - values; }

/// [experts, top_k, ranks]: position of each rank's first choice of each key.
at::Tensor all_starts(const at::Tensor& counts, const Sizes& sizes) {
  const at::Tensor queue = counts.view({sizes.ranks, sizes.experts, sizes.top_k}).permute({1, 2, 0});
  return sums_before(queue.reshape({sizes.experts, -1})).view(queue.sizes());
}

}  // namespace

at::Tensor keys_of(const at::Tensor& chosen) {
  const std::int64_t top_k = chosen.size(0);
  return (chosen * top_k + at::arange(top_k, chosen.options()).unsqueeze(1)).flatten();
}

at::Tensor count_keys(const at::Tensor& keys, const Sizes& sizes) {
  return at::zeros({sizes.experts * sizes.top_k}, keys.options()).scatter_add_(0, keys, at::ones_like(keys));
}

Queues find_queues(const at::Tensor& keys, const at::Tensor& counts, const Sizes& sizes) {
  const at::Tensor starts = all_starts(counts, sizes).select(2, sizes.rank).flatten();
  // After sorting, the position of a choice is that of its key's first choice plus its distance from it.
  const auto [sorted, order] = at::sort(keys, /*stable=*/std::optional<bool>(true), 0);
  const at::Tensor shift = starts - sums_before(counts[sizes.rank]);
  const at::Tensor places = at::arange(keys.size(0), keys.options()) + shift.index_select(0, sorted);
  return {starts, at::empty_like(keys).scatter_(0, order, places)};
}

at::Tensor slots_of(const at::Tensor& keys, const Queues& queues, const Sizes& sizes) {
  const at::Tensor expert = keys.div(sizes.top_k, "floor");
  const at::Tensor behind = at::zeros({}, keys.options()).fill_(sizes.experts * sizes.capacity);
  return at::where(queues.positions < sizes.capacity, expert * sizes.capacity + queues.positions, behind);
}

std::int64_t Messages::count_sent() const { return std::accumulate(sent.begin(), sent.end(), std::int64_t{0}); }

Messages plan_messages(const at::Tensor& keys, const Queues& queues, const at::Tensor& counts, const Sizes& sizes) {
  const at::Tensor host = counts.to(at::kCPU);
  const at::Tensor starts = all_starts(host, sizes);
  const at::Tensor taken = at::minimum(host.view({sizes.ranks, sizes.experts, sizes.top_k}).permute({1, 2, 0}),
                                       (-starts + sizes.capacity).clamp_min(0));
  Messages out;
  const auto experts_of = [&](std::int64_t rank) { return expert_axis::part_of(sizes.experts, sizes.ranks, rank); };
  const auto own = experts_of(sizes.rank);
  const auto total = [](const at::Tensor& numbers) { return numbers.sum().item<std::int64_t>(); };  // on the host
  for (std::int64_t rank = 0; rank < sizes.ranks; ++rank) {
    const auto theirs = experts_of(rank);
    out.sent.push_back(total(taken.select(2, sizes.rank).narrow(0, theirs.begin, theirs.count)));
    out.received.push_back(total(taken.select(2, rank).narrow(0, own.begin, own.count)));
  }
  const at::Tensor first_rows = tensors::moved(sums_before(taken.select(2, sizes.rank).flatten()), keys.device());
  const at::Tensor behind = at::zeros({}, keys.options()).fill_(out.count_sent());
  out.rows = at::where(queues.positions < sizes.capacity,
                       (first_rows - queues.starts).index_select(0, keys) + queues.positions, behind);

  // Rows of a key are consecutive in a message, and in the expert's queue.
  const auto by_rank = [&](const at::Tensor& numbers) {
    return numbers.narrow(0, own.begin, own.count).permute({2, 0, 1});
  };
  const at::Tensor lengths = by_rank(taken).flatten();
  const at::Tensor begins = at::arange(own.count, host.options()).view({1, -1, 1}) * sizes.capacity + by_rank(starts);
  const std::int64_t rows = std::accumulate(out.received.begin(), out.received.end(), std::int64_t{0});
  const at::Tensor shifts = at::repeat_interleave(begins.flatten() - sums_before(lengths), lengths, 0, rows);
  out.slots = tensors::moved(shifts + at::arange(rows, host.options()), keys.device());
  return out;
}

}  // namespace danling::inline v0::parallel::expert_routing
