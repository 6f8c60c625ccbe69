#include <metrics/host_staging.hpp>

#include <algorithm>
#include <vector>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <metrics/kept.hpp>

namespace danling::inline v0::detail {
namespace {

constexpr std::int64_t block_bytes = std::int64_t{1} << 20;

at::Tensor staging_block(const at::Tensor& rows) {
  const std::int64_t count = std::max<std::int64_t>(rows.size(0), 1);
  const std::int64_t bytes = static_cast<std::int64_t>(rows.nbytes()) / count;
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  sizes[0] = std::max(count, block_bytes / std::max<std::int64_t>(bytes, 1));
  return kept_empty(sizes, at::TensorOptions().dtype(rows.dtype()).pinned_memory(rows.is_cuda()));
}

}  // namespace

void HostStaging::add(const at::Tensor& rows, const Sink& sink) {
  if (rows.size(0) == 0) {
    return;
  }
  if (Block& full = blocks_[current_]; full.memory.defined() && full.used + rows.size(0) > full.memory.size(0)) {
    current_ = 1 - current_;
    empty(blocks_[current_], sink);
  }
  Block& block = blocks_[current_];
  if (!block.memory.defined() || rows.size(0) > block.memory.size(0)) {
    block.memory = staging_block(rows);
  }
  std::optional<c10::Stream> stream;
  if (rows.is_cuda()) {
    stream = c10::impl::VirtualGuardImpl(rows.device().type()).getStream(rows.device());
    if (block.arrived && block.stream != stream) {
      block.arrived->synchronize();  // an event covers one stream
    }
  }
  block.memory.narrow(0, block.used, rows.size(0)).copy_(rows, /*non_blocking=*/rows.is_cuda());
  block.used += rows.size(0);
  if (stream) {
    block.stream = stream;
    block.arrived.emplace(rows.device().type());
    block.arrived->record(*stream);
  }
}

void HostStaging::finish(const Sink& sink) {
  current_ = 1 - current_;  // the block filled first comes first
  for (int turn = 0; turn < 2; ++turn) {
    empty(blocks_[current_], sink);
    blocks_[current_].memory.reset();
    current_ = 1 - current_;
  }
}

void HostStaging::empty(Block& block, const Sink& sink) {
  if (block.used == 0) {
    return;
  }
  if (block.arrived) {
    block.arrived->synchronize();
    block.arrived.reset();
  }
  const at::Tensor rows = block.memory.narrow(0, 0, block.used);
  block.used = 0;
  sink(rows);
}

}  // namespace danling::inline v0::detail
