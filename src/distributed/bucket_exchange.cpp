#include "distributed/bucket_exchange.hpp"

#include <algorithm>
#include <utility>

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

}  // namespace

BucketExchange::~BucketExchange() = default;

std::unique_ptr<BucketExchange> make_group_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                    std::chrono::milliseconds) {
  return std::make_unique<GroupExchange>(group, buckets);
}

std::unique_ptr<BucketExchange> make_exchange(const Group& group, const std::vector<BucketShape>& buckets, bool shared,
                                              std::chrono::milliseconds timeout, std::string& text) {
  const bool on_host =
      std::all_of(buckets.begin(), buckets.end(), [](const BucketShape& bucket) { return bucket.device.is_cpu(); });
  std::string reason;
  if (shared && on_host && !group.alone()) {
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
