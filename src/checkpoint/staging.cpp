#include <checkpoint/staging.hpp>

#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <checkpoint/nested_state.hpp>
#include <tensors/workers.hpp>

namespace danling::inline v0 {
namespace {

constexpr std::int64_t alignment = 64;
// Small enough that threads finish together, large enough that scheduling costs little.
constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;

bool is_staged(const State& state) {
  if (!state.is_tensor() || !state.tensor().defined()) {
    return false;
  }
  // The writer throws for other tensors and names their key.
  const at::Tensor& tensor = state.tensor();
  return tensor.layout() == at::kStrided && tensor.has_storage() && !tensor.is_meta() && !tensor.is_quantized() &&
         !tensor.is_nested();
}

at::Tensor bytes_of(const c10::Storage& storage) {
  at::Tensor view = at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()));
  return view.set_(storage, 0, {static_cast<std::int64_t>(storage.nbytes())}, {1});
}

// The storages of a state, and their offsets in the buffer.
struct Plan {
  struct Part {
    c10::Storage source;
    std::int64_t offset;
    c10::Storage copy;
  };
  std::vector<Part> parts;
  std::unordered_map<const c10::StorageImpl*, std::size_t> numbers;
  std::int64_t bytes = 0;

  void add(const State& state) {
    if (state.is_map()) {
      for (const auto& entry : state.map()) {
        add(entry.value);
      }
    } else if (state.is_list() || state.is_tuple()) {
      for (const auto& item : state.items()) {
        add(item);
      }
    } else if (is_staged(state)) {
      const c10::Storage& storage = state.tensor().storage();
      if (numbers.try_emplace(storage.unsafeGetStorageImpl(), parts.size()).second) {
        parts.push_back({storage, bytes, {}});
        bytes += (static_cast<std::int64_t>(storage.nbytes()) + alignment - 1) / alignment * alignment;
      }
    }
  }
};

// Bypasses the caches: the copy is not read soon, and training keeps its cached data. memcpy does so only for blocks
// larger than a cache; in pieces it took 1.5 times as long. `to` is a multiple of 16.
void copy_piece(char* to, const char* from, std::size_t bytes) {
#ifdef __SSE2__
  const std::size_t whole = bytes / 64 * 64;
  for (std::size_t at = 0; at < whole; at += 64) {
    for (std::size_t part = at; part < at + 64; part += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + part),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + part)));
    }
  }
  _mm_sfence();
  to += whole;
  from += whole;
  bytes -= whole;
#endif
  std::memcpy(to, from, bytes);
}

void copy_host_memory(const std::vector<Plan::Part>& parts, char* to) {
  struct Piece {
    char* to;
    const char* from;
    std::size_t bytes;
  };
  std::vector<Piece> pieces;
  for (const auto& part : parts) {
    if (!part.source.device().is_cpu()) {
      continue;
    }
    const auto size = static_cast<std::int64_t>(part.source.nbytes());
    const auto* from = static_cast<const char*>(part.source.data());
    for (std::int64_t done = 0; done < size; done += piece_bytes) {
      pieces.push_back(
          {to + part.offset + done, from + done, static_cast<std::size_t>(std::min(piece_bytes, size - done))});
    }
  }
  // A few pieces per thread: a large piece is worth a thread, many small tensors are not.
  tensors::for_each_range(static_cast<std::int64_t>(pieces.size()), 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<std::size_t>(i)];
      copy_piece(piece.to, piece.from, piece.bytes);
    }
  });
}

at::Tensor view_copy(const at::Tensor& tensor, const c10::Storage& storage) {
  at::Tensor out = at::empty({0}, at::TensorOptions().dtype(tensor.dtype()));
  out.set_(storage, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  if (tensor.is_conj()) {
    out = at::_conj(out);
  }
  if (tensor.is_neg()) {
    out = at::_neg_view(out);
  }
  return out.set_requires_grad(tensor.requires_grad());
}

State rebuild(const State& state, const Plan& plan) {
  if (state.is_map()) {
    State::Map out;
    for (const auto& entry : state.map()) {
      out.set(entry.key, rebuild(entry.value, plan));
    }
    return out;
  }
  if (state.is_list() || state.is_tuple()) {
    State::List out;
    out.reserve(state.items().size());
    for (const auto& item : state.items()) {
      out.push_back(rebuild(item, plan));
    }
    return state.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
  }
  if (is_staged(state)) {
    const auto number = plan.numbers.at(state.tensor().storage().unsafeGetStorageImpl());
    return view_copy(state.tensor(), plan.parts[number].copy);
  }
  return state;
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

State StagingBuffer::stage(const State& source, bool pinned) {
  wait();  // for the copies of a save that was dropped before it was written
  const State state = encode_nested(source);
  Plan plan;
  plan.add(state);
  std::vector<c10::Device> devices;
  for (const auto& part : plan.parts) {
    const c10::Device device = part.source.device();
    if (!device.is_cpu() && std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  pinned = pinned && !devices.empty();
  reserve(plan.bytes, pinned);
  auto* const begin = static_cast<char*>(memory_.mutable_data_ptr());
  for (auto& part : plan.parts) {
    const auto size = static_cast<std::int64_t>(part.source.nbytes());
    at::Tensor place = memory_.narrow(0, part.offset, size);
    // A separate storage each: different storages must stay different in the file.
    part.copy = size == 0 ? at::empty({0}, at::kByte).storage()
                          : at::from_blob(begin + part.offset, {size}, at::TensorOptions().dtype(at::kByte)).storage();
    if (!part.source.device().is_cpu()) {
      place.copy_(bytes_of(part.source), /*non_blocking=*/pinned);
    }
  }
  copy_host_memory(plan.parts, begin);
  arrived_.clear();
  for (const auto device : devices) {
    if (pinned) {
      arrived_.emplace_back(device.type()).record(current_stream(device));
    }
  }
  return rebuild(state, plan);
}

void StagingBuffer::wait() {
  for (const auto& event : arrived_) {
    event.synchronize();
  }
}

void StagingBuffer::order_current_stream() {
  for (auto& event : arrived_) {
    event.block(current_stream(event.device()));
  }
}

void StagingBuffer::reserve(std::int64_t bytes, bool pinned) {
  bytes = std::max<std::int64_t>(bytes, 1);
  if (memory_.defined() && memory_.numel() >= bytes && (!pinned || memory_.is_pinned())) {
    return;
  }
  memory_ = at::Tensor();  // frees the old memory first
  memory_ = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
  // Fewer page faults in the first copy; a system without large pages ignores it.
  constexpr std::uintptr_t page = std::uintptr_t{1} << 21;
  const auto first = (reinterpret_cast<std::uintptr_t>(memory_.mutable_data_ptr()) + page - 1) / page * page;
  const auto last = reinterpret_cast<std::uintptr_t>(memory_.mutable_data_ptr()) + static_cast<std::uintptr_t>(bytes);
  if (!pinned && first + page <= last) {
    ::madvise(reinterpret_cast<void*>(first), (last - first) / page * page, MADV_HUGEPAGE);
  }
}

}  // namespace danling::inline v0
