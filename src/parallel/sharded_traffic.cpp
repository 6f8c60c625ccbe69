#include <parallel/sharded_traffic.hpp>

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/view_as_real.h>

namespace danling::inline v0::detail {
namespace {

/// Number of reductions in flight: their buffers are as large as units.
constexpr std::size_t reductions_at_once = 2;

bool are_on_host(const std::vector<std::shared_ptr<ShardUnit>>& units) {
  return std::all_of(units.begin(), units.end(), [](const auto& unit) {
    return std::all_of(unit->parameters().begin(), unit->parameters().end(),
                       [](const ShardedParameter& parameter) { return parameter.whole.device().is_cpu(); });
  });
}

}  // namespace

at::Tensor sum_along(const std::vector<at::Tensor>& tensors, const std::vector<Subtree>& tree, std::size_t first,
                     std::size_t last) {
  if (last - first == 1) {
    return tensors[first];
  }
  const std::size_t middle = right_half(tree, first, last);
  const at::Tensor left = sum_along(tensors, tree, first, middle), right = sum_along(tensors, tree, middle, last);
  if (left.defined() && right.defined()) {
    return left.add(right);
  }
  // Adding zero turns -0 into 0.
  return left.defined() ? left.add(0.0) : right.defined() ? right.add(0.0) : left;
}

std::unique_ptr<ShardTraffic> ShardTraffic::make(TrafficOptions options,
                                                 const std::vector<std::shared_ptr<ShardUnit>>& units) {
  if (options.shared_memory && !options.group.alone() && are_on_host(units)) {
    if (auto shared = make_shared_traffic(options, units)) {
      return shared;
    }
  }
  return make_group_traffic(std::move(options));
}

void ShardTraffic::reduce(ShardUnit& unit, std::vector<at::Tensor> gradients) {
  const at::NoGradGuard no_grad;
  // At points common to all ranks: the sums over replicas must begin in one order.
  while (summing_.size() >= reductions_at_once) {
    sum_first();
  }
  while (settling_.size() >= reductions_at_once) {
    accept_first();
  }
  std::vector<bool> has;
  for (const at::Tensor& gradient : gradients) {
    has.push_back(gradient.defined());
  }
  auto reduction = start_reduce(unit, gradients);
  reduction->unit = &unit;
  reduction->has = std::move(has);
  summing_.push_back(std::move(reduction));
  while (options_.replicas.alone() && !summing_.empty() && is_ready(*summing_.front())) {
    sum_first();
    accept_first();
  }
}

void ShardTraffic::sum_first() {
  auto reduction = std::move(summing_.front());
  summing_.pop_front();
  sum(*reduction);
  const Group& replicas = options_.replicas;
  for (at::Tensor& sum : reduction->sums) {
    if (replicas.alone() || !sum.defined()) {
      continue;
    }
    if (options_.along_tree) {
      sum = sum_along(replicas.all_gather(sum), subtrees_of_ranks(replicas.size()), 0,
                      static_cast<std::size_t>(replicas.size()));
      count_reduce(static_cast<std::int64_t>(sum.nbytes()) * (replicas.size() - 1));
    } else {
      reduction->works.push_back(replicas.start_all_reduce(sum.is_complex() ? at::view_as_real(sum) : sum));
      count_reduce(2 * static_cast<std::int64_t>(sum.nbytes()) * (replicas.size() - 1) / replicas.size());
    }
  }
  settling_.push_back(std::move(reduction));
}

void ShardTraffic::accept_first() {
  const auto reduction = std::move(settling_.front());
  settling_.pop_front();
  for (Work& work : reduction->works) {
    work.wait();
  }
  for (std::size_t at = 0; at < reduction->sums.size(); ++at) {
    if (reduction->sums[at].defined()) {
      reduction->unit->accept(reduction->unit->packs()[at], reduction->sums[at], reduction->has);
    }
  }
}

void ShardTraffic::finish_reduces() {
  while (!summing_.empty()) {
    sum_first();
  }
  while (!settling_.empty()) {
    accept_first();
  }
}

}  // namespace danling::inline v0::detail
