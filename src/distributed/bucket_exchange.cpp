#include <distributed/bucket_exchange.hpp>

#include <algorithm>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::detail {
namespace {

at::Tensor new_bucket(const BucketShape& shape) {
  return at::zeros({shape.numel}, at::TensorOptions().dtype(shape.dtype).device(shape.device));
}

/// Asynchronous collectives over separate connections, so that they do not mix with those of the training loop.
class GroupExchange : public BucketExchange {
 public:
  GroupExchange(const Group& group, const std::vector<BucketShape>& shapes) : group_(group.split(0, group.rank())) {
    for (const BucketShape& shape : shapes) {
      buckets_.push_back(new_bucket(shape));
    }
    works_.resize(shapes.size());
  }

  at::Tensor memory(std::size_t bucket) const override { return buckets_[bucket]; }
  std::string name() const override { return "collectives of the group"; }
  void start(std::size_t bucket) override { works_[bucket] = group_.start_all_reduce(buckets_[bucket]); }
  void finish_all() override {
    for (Work& work : works_) {
      work.wait();
      work = Work();
    }
  }
  void set_timeout(std::chrono::milliseconds timeout) override { group_.set_timeout(timeout); }

 private:
  Group group_;
  std::vector<at::Tensor> buckets_;
  std::vector<Work> works_;
};

/// Each rank sums one part of every bucket along the tree: it receives that part from all ranks and sends them the sum.
/// Transfers as many bytes as a ring.
class TreeExchange : public BucketExchange {
 public:
  TreeExchange(const Group& group, const std::vector<BucketShape>& shapes, std::vector<Subtree> ranks)
      : group_(group.split(0, group.rank())), ranks_(std::move(ranks)) {
    for (const BucketShape& shape : shapes) {
      buckets_.push_back(new_bucket(shape));
    }
  }

  at::Tensor memory(std::size_t bucket) const override { return buckets_[bucket]; }
  std::string name() const override { return "collectives of the group"; }
  void start(std::size_t) override {}
  void finish_all() override {
    const at::NoGradGuard no_grad;
    for (at::Tensor& bucket : buckets_) {
      const std::int64_t ranks = group_.size();
      std::vector<at::Tensor> parts;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const std::int64_t begin = bucket.numel() * rank / ranks;
        parts.push_back(bucket.narrow(0, begin, bucket.numel() * (rank + 1) / ranks - begin));
      }
      const auto sums = group_.all_gather(sum(group_.all_to_all(parts), 0, ranks_.size()));
      for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        parts[rank].copy_(sums[rank]);
      }
    }
  }
  void set_timeout(std::chrono::milliseconds timeout) override { group_.set_timeout(timeout); }

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
                                                    std::chrono::milliseconds timeout) {
  auto exchange = std::make_unique<GroupExchange>(group, buckets);
  exchange->set_timeout(timeout);
  return exchange;
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
  auto exchange = std::make_unique<TreeExchange>(group, buckets, std::move(ranks));
  exchange->set_timeout(timeout);
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
