// The memory of large batches, which goes from one to the next.
#include <data/batch_memory.hpp>

#include <algorithm>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>

#include <danling/data/batch.hpp>
#include <danling/data/loader.hpp>
#include <danling/data/sample.hpp>

#include <support/catch.hpp>

namespace {

namespace batch_memory_test {

namespace data = danling::data;
using data::detail::batch_memory;
using data::detail::empty_batch;

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

TEST_CASE("Batch memory: a large tensor takes the memory of one that is gone, where that is not much larger",
          "[data]") {
  const auto before = batch_memory();
  at::Tensor first = empty_batch({4, mebibyte}, at::kFloat);
  CHECK(first.sizes() == at::IntArrayRef{4, mebibyte});
  CHECK(first.scalar_type() == at::kFloat);
  CHECK(first.is_contiguous());
  CHECK(batch_memory().used == before.used + 16 * mebibyte);
  const void* const address = first.const_data_ptr();
  first = at::Tensor();
  CHECK(batch_memory().used == before.used);
  at::Tensor larger = empty_batch({17 * mebibyte}, at::kByte);
  CHECK(larger.const_data_ptr() != address);
  at::Tensor smaller = empty_batch({8 * mebibyte}, at::kByte);
  CHECK(smaller.const_data_ptr() != address);
  at::Tensor second = empty_batch({15 * mebibyte}, at::kByte);
  CHECK(second.const_data_ptr() == address);
  second.resize_({20 * mebibyte});  // as any other tensor
  CHECK(second.numel() == 20 * mebibyte);
  const at::Tensor small = empty_batch({100}, at::kByte);
  CHECK(batch_memory().used < before.used + 46 * mebibyte);
}

TEST_CASE("Batch memory: idle memory is at most a quarter of what is in use, or one block", "[data]") {
  std::vector<at::Tensor> held;
  for (int i = 0; i < 8; ++i) {
    held.push_back(empty_batch({2 * mebibyte}, at::kByte));
  }
  while (!held.empty()) {
    held.pop_back();
    const auto memory = batch_memory();
    CHECK(memory.idle <= std::max(memory.used / 4, 20 * mebibyte));  // a block of other tests may be the one
  }
  CHECK(batch_memory().used == 0);
}

TEST_CASE("Loader: large batches stay in the memory of those that are read ahead", "[data]") {
  struct Large {
    std::int64_t size() const { return 160; }
    data::Sample get(std::int64_t i) const { return {.input = at::full({mebibyte / 4}, static_cast<float>(i))}; }
  };
  for (const std::int64_t workers : {0, 2}) {
    data::Loader<danling::Batch> loader(Large(), {.batch_size = 4, .num_workers = workers});
    const std::int64_t most = 4 * mebibyte * (2 * workers + 1 + (workers == 0 ? 1 : 0));
    loader.start_epoch(0);
    while (loader.next()) {
      const auto memory = batch_memory();
      CHECK(memory.used <= most);
      CHECK(memory.idle <= std::max(memory.used / 4, 20 * mebibyte));
      CHECK(loader.batch().input[3][5].item<float>() == static_cast<float>(loader.info().indices[3]));
    }
    CHECK(batch_memory().used == 0);
  }
}

TEST_CASE("Collate: large samples that do not lie in rows are stacked as LibTorch does", "[data]") {
  const at::Tensor first = at::full({1024, 512}, 2.0f).t();
  const at::Tensor second = at::full({1024, 512}, 3.0f).t();
  const at::Tensor batch = data::collate({{.input = first}, {.input = second}}).input;
  const at::Tensor expected = at::stack({first, second});
  CHECK(at::equal(batch, expected));
  CHECK(batch.strides() == expected.strides());
}

}  // namespace batch_memory_test

}  // namespace
