#include <parallel/pipeline_channel.hpp>

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>

#include <danling/core/error.hpp>

namespace danling::inline v0::parallel::detail {
namespace {

constexpr std::int64_t head_bytes = 64;  // also the alignment of tensors in a buffer

struct MessageHead {
  std::int64_t changed = 0;  ///< length of the layout that follows; 0: this message has the tensors
  std::int64_t micro_batches = 0;
};
static_assert(sizeof(MessageHead) <= head_bytes);

std::int64_t aligned(std::int64_t bytes) { return (bytes + head_bytes - 1) / head_bytes * head_bytes; }

void write_tensors(const at::Tensor& buffer, std::int64_t begin, const MessageLayout& layout,
                   const std::vector<SentTensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (layout.entries[i].bytes > 0) {
      const auto& entry = layout.entries[i];
      buffer.narrow(0, begin + entry.offset, entry.bytes).view(entry.type).view(entry.sizes).copy_(tensors[i].tensor);
    }
  }
}

}  // namespace

void MessageLayout::add(std::int64_t place, at::ScalarType type, bool needs_gradient, std::vector<std::int64_t> sizes) {
  std::int64_t count = static_cast<std::int64_t>(c10::elementSize(type));
  for (const auto size : sizes) {
    count *= size;
  }
  entries.push_back({place, type, needs_gradient, std::move(sizes), bytes, count});
  bytes += aligned(count);
}

std::vector<std::int64_t> MessageLayout::packed() const {
  std::vector<std::int64_t> out;
  out.push_back(static_cast<std::int64_t>(entries.size()));
  for (const Entry& entry : entries) {
    out.insert(out.end(), {entry.place, static_cast<std::int64_t>(entry.type), entry.needs_gradient ? 1 : 0,
                           static_cast<std::int64_t>(entry.sizes.size())});
    out.insert(out.end(), entry.sizes.begin(), entry.sizes.end());
  }
  return out;
}

MessageLayout MessageLayout::unpacked(const std::int64_t* numbers, std::int64_t count) {
  const std::vector<std::int64_t> all(numbers, numbers + count);
  MessageLayout out;
  auto next = all.begin();
  for (std::int64_t left = *next++; left > 0; --left) {
    const std::int64_t place = *next++;
    const auto type = static_cast<at::ScalarType>(*next++);
    const bool needs_gradient = *next++ != 0;
    const std::int64_t dims = *next++;
    out.add(place, type, needs_gradient, std::vector<std::int64_t>(next, next + dims));
    next += dims;
  }
  return out;
}

at::Tensor BufferPool::take(std::int64_t bytes) {
  const auto found =
      std::find_if(free_.begin(), free_.end(), [&](const at::Tensor& buffer) { return buffer.numel() == bytes; });
  if (found != free_.end()) {
    at::Tensor buffer = std::move(*found);
    free_.erase(found);
    return buffer;
  }
  const c10::InferenceMode normal(false);  // a training step may use the buffer later
  return at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned_));
}

void BufferPool::put_back(at::Tensor buffer) {
  constexpr std::size_t most = 256;
  if (buffer.defined() && buffer.use_count() == 1 && buffer.storage().use_count() == 1 && free_.size() < most) {
    free_.push_back(std::move(buffer));
  }
}

PipelineChannel::Sending PipelineChannel::send(const Group& group, BufferPool& pool,
                                               const std::vector<SentTensor>& tensors, std::int64_t micro_batches) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  MessageLayout layout;
  for (const SentTensor& sent : tensors) {
    check<ConfigError>(sent.tensor.layout() == at::kStrided, "pipeline.send",
                       "expected strided tensors between stages, got output ", sent.place, " with another layout");
    layout.add(sent.place, sent.tensor.scalar_type(), sent.needs_gradient, sent.tensor.sizes().vec());
  }
  const bool same = layout.entries == layout_.entries;
  const std::vector<std::int64_t> numbers = layout.packed();

  Sending sending;
  const auto start = [&](at::Tensor buffer) {
    sending.works.push_back(group.start_send(buffer, peer_, tag_));
    sending.buffers.push_back(std::move(buffer));
  };
  at::Tensor first = pool.take(head_bytes + layout_.bytes);
  const MessageHead head = {same ? 0 : static_cast<std::int64_t>(numbers.size()), micro_batches};
  std::memcpy(first.data_ptr(), &head, sizeof head);
  if (same) {
    write_tensors(first, head_bytes, layout, tensors);
  }
  start(std::move(first));
  if (!same) {
    const auto bytes = static_cast<std::int64_t>(numbers.size() * sizeof(std::int64_t));
    at::Tensor shapes = at::empty({bytes}, at::TensorOptions().dtype(at::kByte));
    std::memcpy(shapes.data_ptr(), numbers.data(), static_cast<std::size_t>(bytes));
    start(std::move(shapes));
    if (layout.bytes > 0) {
      at::Tensor data = pool.take(layout.bytes);
      write_tensors(data, 0, layout, tensors);
      start(std::move(data));
    }
    layout_ = std::move(layout);
  }
  return sending;
}

void PipelineChannel::start_receive(const Group& group, BufferPool& pool) {
  if (!pending_.defined()) {
    pending_ = pool.take(head_bytes + layout_.bytes);
    pending_work_ = group.start_recv(pending_, peer_, tag_);
  }
}

PipelineChannel::Received PipelineChannel::receive(const Group& group, BufferPool& pool, at::Device device) {
  const c10::InferenceMode normal(false);
  const at::NoGradGuard no_grad;
  start_receive(group, pool);
  Received out;
  out.buffer = std::exchange(pending_, at::Tensor());
  std::exchange(pending_work_, Work()).wait();
  MessageHead head;
  std::memcpy(&head, out.buffer.const_data_ptr(), sizeof head);
  out.micro_batches = head.micro_batches;
  std::int64_t begin = head_bytes;
  if (head.changed > 0) {
    const at::Tensor shapes = at::empty({head.changed * static_cast<std::int64_t>(sizeof(std::int64_t))},
                                        at::TensorOptions().dtype(at::kByte));
    group.start_recv(shapes, peer_, tag_).wait();
    layout_ = MessageLayout::unpacked(static_cast<const std::int64_t*>(shapes.const_data_ptr()), head.changed);
    begin = 0;
    if (layout_.bytes > 0) {
      pool.put_back(std::move(out.buffer));
      out.buffer = pool.take(layout_.bytes);
      group.start_recv(out.buffer, peer_, tag_).wait();
    }
  }
  for (const auto& entry : layout_.entries) {
    const auto options = at::TensorOptions().dtype(entry.type);
    // Not a view: an in-place change of one tensor by a stage would count as a change of all.
    at::Tensor tensor = entry.bytes > 0 ? at::from_blob(
                                              static_cast<char*>(out.buffer.data_ptr()) + begin + entry.offset,
                                              entry.sizes, [keep = out.buffer](void*) {}, options)
                                        : at::empty(entry.sizes, options);
    out.tensors.push_back({device.is_cpu() ? std::move(tensor) : tensor.to(device), entry.place, entry.needs_gradient});
  }
  return out;
}

}  // namespace danling::inline v0::parallel::detail
