#include "distributed/bucket_exchange.hpp"

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

class GroupExchange : public BucketExchange {
 public:
  GroupExchange(Group group, const std::vector<BucketShape>& shapes) : group_(std::move(group)) {
    for (const BucketShape& shape : shapes) {
      buckets_.push_back(at::zeros({shape.numel}, at::TensorOptions().dtype(shape.dtype).device(shape.device)));
    }
  }

  at::Tensor memory(std::size_t bucket) const override { return buckets_[bucket]; }
  std::string name() const override { return "gloo"; }
  void start(std::size_t) override {}
  void finish_all() override {
    for (at::Tensor& bucket : buckets_) {
      group_.all_reduce(bucket);
    }
  }
  void set_timeout(std::chrono::milliseconds) override {}

 private:
  Group group_;
  std::vector<at::Tensor> buckets_;
};

// Each rank gathers the buckets of all and adds them along the tree: as many copies as ranks.
class GatheredExchange : public BucketExchange {
 public:
  GatheredExchange(Group group, const std::vector<BucketShape>& shapes, std::vector<Subtree> ranks)
      : group_(std::move(group)), ranks_(std::move(ranks)) {
    for (const BucketShape& shape : shapes) {
      buckets_.push_back(at::zeros({shape.numel}, at::TensorOptions().dtype(shape.dtype).device(shape.device)));
    }
  }

  at::Tensor memory(std::size_t bucket) const override { return buckets_[bucket]; }
  std::string name() const override { return "gathered"; }
  void start(std::size_t) override {}
  void finish_all() override {
    const at::NoGradGuard no_grad;
    for (at::Tensor& bucket : buckets_) {
      bucket.copy_(sum(group_.all_gather(bucket), 0, ranks_.size()));
    }
  }
  void set_timeout(std::chrono::milliseconds) override {}

 private:
  at::Tensor sum(const std::vector<at::Tensor>& all, std::size_t first, std::size_t last) const {
    if (last - first == 1) {
      return all[first];
    }
    const std::size_t middle = right_half(ranks_, first, last);
    return sum(all, first, middle).add(sum(all, middle, last));
  }

  Group group_;
  std::vector<Subtree> ranks_;
  std::vector<at::Tensor> buckets_;
};

bool on_host(const std::vector<BucketShape>& buckets) {
  return std::all_of(buckets.begin(), buckets.end(), [](const BucketShape& bucket) { return bucket.device.is_cpu(); });
}

}  // namespace

BucketExchange::~BucketExchange() = default;

std::unique_ptr<BucketExchange> make_group_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                    std::chrono::milliseconds) {
  return std::make_unique<GroupExchange>(group, buckets);
}

std::unique_ptr<BucketExchange> make_tree_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                   std::vector<Subtree> ranks, bool shared,
                                                   std::chrono::milliseconds timeout, std::string& text) {
  std::string reason;
  if (shared && on_host(buckets)) {
    auto exchange = make_shared_exchange(group, buckets, ranks, timeout, &reason);
    if (exchange != nullptr) {
      text = exchange->name();
      return exchange;
    }
  }
  auto exchange = std::make_unique<GatheredExchange>(group, buckets, std::move(ranks));
  text = reason.empty() ? exchange->name() : concat(exchange->name(), " (", reason, ")");
  return exchange;
}

std::unique_ptr<BucketExchange> make_exchange(const Group& group, const std::vector<BucketShape>& buckets, bool shared,
                                              std::chrono::milliseconds timeout, std::string& text) {
  std::string reason;
  if (shared && on_host(buckets) && !group.alone()) {
    auto exchange = make_shared_exchange(group, buckets, subtrees_of_ranks(group.size()), timeout, &reason);
    if (exchange != nullptr) {
      text = exchange->name();
      return exchange;
    }
  }
  auto exchange = make_group_exchange(group, buckets, timeout);
  text = reason.empty() ? exchange->name() : concat(exchange->name(), " (", reason, ")");
  return exchange;
}

}  // namespace danling::inline v0::detail
