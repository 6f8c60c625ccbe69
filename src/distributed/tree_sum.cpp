#include <distributed/tree_sum.hpp>

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::int64_t alignment = 16;  // elements: a cache line of float32

at::ScalarType sum_dtype(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

}  // namespace

TreeSum::TreeSum(const std::vector<at::Tensor>& like, Group group, Options options)
    : group_(std::move(group)), options_(std::move(options)) {
  if (group_.alone() || like.empty()) {
    return;
  }
  std::vector<at::ScalarType> dtypes;
  std::vector<BucketShape> shapes;  // per dtype
  std::vector<std::pair<std::size_t, std::int64_t>> places;
  for (const at::Tensor& tensor : like) {
    const at::ScalarType dtype = sum_dtype(tensor.scalar_type());
    auto bucket = static_cast<std::size_t>(std::find(dtypes.begin(), dtypes.end(), dtype) - dtypes.begin());
    if (bucket == dtypes.size()) {
      dtypes.push_back(dtype);
      shapes.push_back({0, dtype, tensor.device()});
    }
    places.emplace_back(bucket, shapes[bucket].numel);
    shapes[bucket].numel += (tensor.numel() + alignment - 1) / alignment * alignment;
  }
  exchange_ = make_tree_exchange(group_, shapes, options_.ranks, options_.shared_memory, options_.timeout, text_);
  for (std::size_t index = 0; index < like.size(); ++index) {
    const auto [bucket, offset] = places[index];
    views_.push_back(exchange_->memory(bucket).narrow(0, offset, like[index].numel()).view(like[index].sizes()));
  }
  buckets_ = shapes.size();
}

void TreeSum::push(std::vector<at::Tensor> shard) {
  check<StateError>(pushed_ < own().size(), "tree_sum.push", "expected ", own().size(), " shards, got another one");
  const at::NoGradGuard no_grad;
  for (at::Tensor& tensor : shard) {
    if (tensor.defined() && sum_dtype(tensor.scalar_type()) != tensor.scalar_type()) {
      tensor = tensor.to(at::kFloat);
    }
  }
  Node node{std::move(shard), 1};
  while (!nodes_.empty() && nodes_.back().shards == node.shards) {
    Node left = std::move(nodes_.back());
    nodes_.pop_back();
    add(left.tensors, std::move(node.tensors));
    node = {std::move(left.tensors), 2 * left.shards};
  }
  nodes_.push_back(std::move(node));
  ++pushed_;
}

// Adds zeros explicitly: -0 + 0 is 0, on whichever rank.
void TreeSum::add(std::vector<at::Tensor>& left, std::vector<at::Tensor> right) const {
  for (std::size_t index = 0; index < left.size(); ++index) {
    at::Tensor& sum = left[index];
    if (sum.defined() && right[index].defined()) {
      sum.add_(right[index]);
    } else if (sum.defined() || right[index].defined()) {
      sum = (sum.defined() ? sum : right[index]).add_(0.0);
    }
  }
}

bool TreeSum::lacks_any() const {
  if (pushed_ == 0) {
    return true;
  }
  std::vector<bool> has(nodes_.front().tensors.size(), false);
  for (const Node& node : nodes_) {
    for (std::size_t index = 0; index < has.size(); ++index) {
      has[index] = has[index] || node.tensors[index].defined();
    }
  }
  return std::find(has.begin(), has.end(), false) != has.end();
}

std::vector<at::Tensor> TreeSum::finish(bool any_lacking) {
  const at::NoGradGuard no_grad;
  const std::size_t count = group_.alone() && !nodes_.empty() ? nodes_.front().tensors.size() : views_.size();
  while (pushed_ < own().size()) {
    push(std::vector<at::Tensor>(count));
  }
  std::vector<at::Tensor> sum = std::move(nodes_.front().tensors);
  drop();
  if (exchange_ == nullptr) {
    return sum;
  }
  std::vector<char> present(count, 1);
  if (any_lacking) {
    std::string mine(count, '0');
    for (std::size_t index = 0; index < count; ++index) {
      mine[index] = sum[index].defined() ? '1' : '0';
    }
    std::fill(present.begin(), present.end(), '\0');
    for (const std::string& rank : group_.all_gather(mine)) {
      for (std::size_t index = 0; index < count; ++index) {
        present[index] = static_cast<char>(present[index] != 0 || rank[index] == '1');
      }
    }
  }
  for (std::size_t index = 0; index < count; ++index) {
    if (sum[index].defined()) {
      views_[index].copy_(sum[index]);
      sum[index].reset();
    } else {
      views_[index].zero_();
    }
  }
  for (std::size_t bucket = 0; bucket < buckets_; ++bucket) {
    exchange_->start(bucket);
  }
  exchange_->finish_all();
  for (std::size_t index = 0; index < count; ++index) {
    sum[index] = present[index] != 0 ? views_[index] : at::Tensor();
  }
  return sum;
}

void TreeSum::drop() {
  nodes_.clear();
  pushed_ = 0;
}

void TreeSum::abort(std::string_view reason) {
  if (exchange_ != nullptr) {
    exchange_->abort(reason);
  }
}

void TreeSum::set_timeout(std::chrono::milliseconds timeout) {
  if (exchange_ != nullptr) {
    exchange_->set_timeout(timeout);
  }
}

}  // namespace danling::inline v0::detail
