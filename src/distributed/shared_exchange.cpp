// Sums buckets in shared memory.
#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <danling/core/error.hpp>

#include <distributed/bucket_exchange.hpp>
#include <distributed/shared_memory.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::int64_t line = 64;        // cache line in bytes
constexpr std::int64_t block = 1 << 14;  // elements that stay in the cache between two additions

bool widens(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

class SharedExchange : public BucketExchange {
 public:
  SharedExchange(std::shared_ptr<SharedMemory> memory, const std::vector<BucketShape>& shapes,
                 std::vector<Subtree> ranks)
      : memory_(std::move(memory)), ranks_(std::move(ranks)) {
    std::int64_t offset = 0;
    for (const BucketShape& shape : shapes) {
      Bucket bucket;
      const auto tensor_of = [&](int rank) {
        return at::from_blob(
            memory_->part(rank) + offset, {shape.numel}, [keep = memory_](void*) {},
            at::TensorOptions().dtype(shape.dtype));
      };
      for (int rank = 0; rank < memory_->size(); ++rank) {
        bucket.of_rank.push_back(tensor_of(rank));
      }
      bucket.lent = tensor_of(memory_->rank());
      offset += bytes_of(shape);
      buckets_.push_back(std::move(bucket));
    }
  }

  static std::int64_t bytes_of(const BucketShape& shape) {
    const auto bytes = shape.numel * static_cast<std::int64_t>(c10::elementSize(shape.dtype));
    return (bytes + line - 1) / line * line;
  }

  at::Tensor memory(std::size_t bucket) const override { return buckets_[bucket].lent; }
  std::string name() const override { return "shared memory"; }
  void set_timeout(std::chrono::milliseconds timeout) override { memory_->set_timeout(timeout); }

  void abort(std::string_view reason) override { memory_->abort(reason); }

  void start(std::size_t index) override {
    Bucket& bucket = buckets_[index];
    ++bucket.step;
    bucket.waits = true;
    memory_->raise(filled_flag(index), bucket.step);
  }

  void poll() override {
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      if (buckets_[index].waits && memory_->all_raised(filled_flag(index), buckets_[index].step)) {
        add(index);
      }
    }
  }

  void finish_all() override {
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      if (buckets_[index].waits) {
        memory_->await(filled_flag(index), buckets_[index].step, "the sum of gradients");
        add(index);
      }
    }
    for (std::size_t index = 0; index < buckets_.size(); ++index) {
      memory_->await(added_flag(index), buckets_[index].step, "the sum of gradients");
    }
  }

 private:
  struct Bucket {
    std::vector<at::Tensor> of_rank;
    at::Tensor lent;  // the caller's view of this rank's memory, with a version counter that sums do not increment
    std::uint32_t step = 0;
    bool waits = false;  // started, but this rank's part is not summed yet
  };

  static std::size_t filled_flag(std::size_t bucket) { return 2 * bucket; }
  static std::size_t added_flag(std::size_t bucket) { return 2 * bucket + 1; }
  const at::Tensor& own(const Bucket& bucket) const {
    return bucket.of_rank[static_cast<std::size_t>(memory_->rank())];
  }

  // Sums this rank's part of the bucket: other ranks do not access it until the flag is raised.
  void add(std::size_t index) {
    const at::NoGradGuard no_grad;
    Bucket& bucket = buckets_[index];
    bucket.waits = false;
    const std::int64_t elements = line / static_cast<std::int64_t>(bucket.of_rank.front().element_size());
    const std::int64_t lines = (bucket.of_rank.front().numel() + elements - 1) / elements;
    const auto edge = [&](int rank) {
      return std::min(lines * rank / memory_->size() * elements, bucket.of_rank.front().numel());
    };
    const std::int64_t end = edge(memory_->rank() + 1);
    for (std::int64_t begin = edge(memory_->rank()); begin < end; begin += block) {
      add_block(bucket, begin, std::min(block, end - begin));
    }
    memory_->raise(added_flag(index), bucket.step);
  }

  void add_block(const Bucket& bucket, std::int64_t begin, std::int64_t count) {
    at::Tensor result = own(bucket).narrow(0, begin, count);
    if (widens(result.scalar_type())) {
      result.copy_(sum(bucket, begin, count, 0, ranks_.size(), 0));
    } else {
      const std::size_t middle = right_half(ranks_, 0, ranks_.size());
      const at::Tensor left = sum(bucket, begin, count, 0, middle, 0);
      const at::Tensor right = sum(bucket, begin, count, middle, ranks_.size(), 1);
      at::add_out(result, left, right);
    }
    for (const at::Tensor& other : bucket.of_rank) {
      if (!other.is_same(own(bucket))) {
        std::memcpy(other.narrow(0, begin, count).data_ptr(), result.const_data_ptr(), result.nbytes());
      }
    }
  }

  // Returns the sum over ranks [first, last) in scratch memory `slot`, or one rank's memory. float16 and bfloat16 are
  // summed in float32 and rounded once.
  at::Tensor sum(const Bucket& bucket, std::int64_t begin, std::int64_t count, std::size_t first, std::size_t last,
                 std::size_t slot) {
    if (last - first == 1) {
      at::Tensor leaf = bucket.of_rank[first].narrow(0, begin, count);
      if (!widens(leaf.scalar_type())) {
        return leaf;
      }
      at::Tensor wide = scratch(slot, at::kFloat, count);
      return wide.copy_(leaf);
    }
    const std::size_t middle = right_half(ranks_, first, last);
    const at::Tensor left = sum(bucket, begin, count, first, middle, slot);
    const at::Tensor right = sum(bucket, begin, count, middle, last, slot + 1);
    const at::ScalarType dtype = left.scalar_type();
    at::Tensor out = scratch(slot, dtype, count);
    return at::add_out(out, left, right);
  }

  at::Tensor scratch(std::size_t slot, at::ScalarType dtype, std::int64_t count) {
    while (scratch_.size() <= slot) {
      scratch_.emplace_back();
    }
    if (!scratch_[slot].defined() || scratch_[slot].scalar_type() != dtype) {
      scratch_[slot] = at::empty({block}, at::TensorOptions().dtype(dtype));
    }
    return scratch_[slot].narrow(0, 0, count);
  }

  std::shared_ptr<SharedMemory> memory_;
  std::vector<Subtree> ranks_;
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> scratch_;
};

}  // namespace

std::unique_ptr<BucketExchange> make_shared_exchange(const Group& group, const std::vector<BucketShape>& buckets,
                                                     std::vector<Subtree> ranks, std::chrono::milliseconds timeout,
                                                     std::string* reason) {
  SharedMemory::Options options{.bytes = 0, .flags = 2 * buckets.size(), .timeout = timeout};
  for (const BucketShape& bucket : buckets) {
    options.bytes += static_cast<std::size_t>(SharedExchange::bytes_of(bucket));
  }
  auto memory = SharedMemory::create(group, options, reason);
  if (memory == nullptr) {
    return nullptr;
  }
  return std::make_unique<SharedExchange>(std::move(memory), buckets, std::move(ranks));
}

}  // namespace danling::inline v0::detail
