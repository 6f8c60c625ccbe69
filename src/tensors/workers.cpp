#include <tensors/workers.hpp>

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

namespace danling::inline v0::tensors {
namespace {

/// One byte per item: LibTorch's iterator divides them among its threads, and the address is the index.
struct Items {
  at::Tensor bytes;
  at::TensorIterator iterator;

  explicit Items(std::int64_t count)
      : bytes(at::empty({count}, at::kByte)),
        iterator(at::TensorIteratorConfig()
                     .set_check_mem_overlap(false)
                     .check_all_same_dtype(false)
                     .resize_outputs(false)
                     .add_output(bytes)
                     .build()) {}
};

}  // namespace

void for_each_range(std::int64_t count, std::int64_t grain, c10::function_ref<void(std::int64_t, std::int64_t)> work) {
  if (count < grain || at::get_num_threads() == 1 || at::in_parallel_region()) {
    if (count > 0) {
      work(0, count);
    }
    return;
  }
  thread_local std::optional<Items> items;
  if (!items || items->bytes.numel() != count) {
    const at::NoGradGuard no_grad;
    items.emplace(count);
  }
  const char* const first = static_cast<const char*>(items->bytes.const_data_ptr());
  items->iterator.for_each(
      [&](char** data, const std::int64_t*, std::int64_t inner, std::int64_t outer) {
        const std::int64_t begin = data[0] - first;
        work(begin, begin + inner * outer);
      },
      grain);
}

}  // namespace danling::inline v0::tensors
