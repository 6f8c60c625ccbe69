// Replays a tape.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/TensorImpl.h>

#include <danling/core/format.hpp>

#include <tape/tape.hpp>

namespace danling::inline v0::tape {
namespace {

using Clock = std::chrono::steady_clock;

/// Outputs above this size are not kept for reuse.
constexpr std::size_t max_kept = 256 * 1024;

const void* data_of(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return static_cast<const char*>(impl->unsafe_storage().data()) +
         impl->storage_offset() * static_cast<std::int64_t>(impl->itemsize());
}

/// True if the program has changed at most the content of the tensor.
bool is_as_handed_out(const at::Tensor& tensor, const Layout& layout) {
  return tensor.unsafeGetTensorImpl()->autograd_meta() == nullptr && tensor.storage_offset() == layout.offset &&
         tensor.sizes() == c10::IntArrayRef(layout.sizes) && tensor.strides() == c10::IntArrayRef(layout.strides);
}

}  // namespace

void Tape::bind(int storage, const void* data) {
  Slot& slot = at_index(slots_, storage);
  if (slot.data != data) {
    slot.data = data;
    slot.storage->set_data_ptr_noswap(c10::DataPtr(const_cast<void*>(data), c10::kCPU));
  }
}

const at::Tensor& Tape::source_of(int storage) const {
  const Storage& record = at_index(recording_.storages, storage);
  switch (record.origin) {
    case Origin::input:
      return inputs_[static_cast<std::size_t>(record.source)];
    case Origin::live:
      return *at_index(recording_.live, record.source);
    case Origin::gradient:
      return at_index(recording_.held, record.source).grad();
    default:
      return at_index(recording_.held, record.source);
  }
}

void Tape::bind_source(int storage) {
  const at::Tensor& tensor = source_of(storage);
  bind(storage, tensor.defined() ? data_of(tensor) : nullptr);
}

std::string Tape::misfit() const {
  for (std::size_t i = 0; i < recording_.held.size(); ++i) {
    const at::Tensor& held = recording_.held[i];
    if (!recording_.names[i].empty()) {
      continue;  // checked when the kind of step is chosen
    }
    if (held.requires_grad() != recording_.wants_gradients[i]) {
      return concat("a tensor ", text_of(recording_.layouts[i]), " of the program ",
                    held.requires_grad() ? "now requires gradients" : "no longer requires gradients");
    }
    if (!(layout_of(held) == recording_.layouts[i])) {
      return concat("a tensor ", text_of(recording_.layouts[i]), " of the program is ", text_of(layout_of(held)),
                    " now");
    }
  }
  for (const HostCall& call : recording_.host_calls) {
    if (call.lifetime && call.lifetime->expired()) {
      return concat("the object of \"", call.name, "\" no longer exists: a meter or metric was recreated");
    }
  }
  return "";
}

void Tape::begin(std::span<const at::Tensor> inputs) {
  inputs_ = inputs;
  left_early_ = false;
  if (!planned_.empty()) {
    const void* base = arena_->reserve(static_cast<std::size_t>(report_.arena_bytes));
    if (base != arena_base_) {
      arena_base_ = base;
      for (const int storage : planned_) {
        bind(storage, static_cast<const char*>(base) + at_index(slots_, storage).offset);
      }
    }
  }
  for (const int storage : once_) {
    bind_source(storage);
  }
}

void Tape::bind_variables() {
  for (const int storage : each_piece_) {
    bind_source(storage);
  }
}

void Tape::allocate(int number) {
  Slot& slot = at_index(slots_, number);
  const Storage& storage = at_index(recording_.storages, number);
  // Reuses the tensors of the last step if nobody else holds them.
  bool unused = slot.owner && slot.owner.use_count() == 1 + slot.handed_out.size() && slot.owner->data() == slot.data;
  for (const auto& [value, tensor] : slot.handed_out) {
    unused = unused && tensor.use_count() == 1 && is_as_handed_out(tensor, at_index(recording_.values, value).layout);
  }
  if (unused) {
    std::atomic_thread_fence(std::memory_order_acquire);  // another thread may have released them
    return;
  }
  slot.handed_out.clear();
  auto* const allocator = c10::GetAllocator(c10::kCPU);
  slot.owner = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                     static_cast<std::size_t>(storage.bytes), allocator,
                                                     /*resizable=*/true);
  bind(number, slot.owner->data());
}

void Tape::adopt(const Step& step) {
  const auto take = [&](const at::Tensor& result, int value) {
    const int number = at_index(recording_.values, value).storage;
    Slot& slot = at_index(slots_, number);
    c10::StorageImpl* const from = result.storage().unsafeGetStorageImpl();
    if (slot.memory == Memory::output) {
      slot.handed_out.clear();
      slot.owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(from);
      bind(number, from->data());
    } else if (result.use_count() > 1 || result.storage().use_count() > 1) {  // others hold it too
      slot.owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(from);
      bind(number, from->data());
    } else if (from->data() != slot.data) {  // otherwise another result has provided it, or it is empty
      slot.data = from->data();
      slot.storage->set_data_ptr_noswap(std::move(from->mutable_data_ptr()));
    }
  };
  std::size_t next = 0;
  for (const c10::IValue& result : stack_) {
    if (result.isTensorList()) {
      for (const at::Tensor& tensor : result.toTensorVector()) {
        if (const int value = step.adopts[next++]; value >= 0) {
          take(tensor, value);
        }
      }
    } else if (const int value = step.adopts[next++]; value >= 0) {
      take(result.toTensor(), value);
    }
  }
}

void Tape::run_boxed(const Step& step) {
  c10::GradMode::set_enabled(step.with_gradients);
  stack_.assign(step.arguments.begin(), step.arguments.end());
  step.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  if (!step.adopts.empty()) {
    adopt(step);
  }
  left_early_ = step.guard && stack_.front() != recording_.calls[step.call].results.front().constant;
}

bool Tape::run(const Piece& piece) {
  bind_variables();
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::AutoGradMode mode(c10::GradMode::is_enabled());  // restores the mode at the end
  struct Clear {                                              // also if a kernel throws
    torch::jit::Stack& stack;
    ~Clear() { stack.clear(); }
  } const clear{stack_};
  Clock::time_point start;
  for (std::size_t i = piece.begin; i < piece.end; ++i) {
    Step& step = steps_[i];
    if (measures_) [[unlikely]] {
      start = Clock::now();
    }
    for (const int storage : step.allocates) {
      allocate(storage);
    }
    if (step.kernel) {
      step.kernel();
    } else {
      run_boxed(step);
    }
    for (const int storage : step.frees) {
      Slot& slot = at_index(slots_, storage);
      slot.owner.reset();
      slot.data = nullptr;
      slot.storage->set_data_ptr_noswap(c10::DataPtr(nullptr, c10::kCPU));
    }
    if (measures_) [[unlikely]] {
      step.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    }
    if (left_early_) [[unlikely]] {
      break;
    }
  }
  return !left_early_;
}

at::Tensor Tape::hand_out(int value) {
  if (value < 0) {
    return {};
  }
  const Value& record = at_index(recording_.values, value);
  Slot& slot = at_index(slots_, record.storage);
  if (slot.memory == Memory::output) {
    for (const auto& [known, tensor] : slot.handed_out) {
      if (known == value) {
        return tensor;
      }
    }
    slot.handed_out.emplace_back(value, tensor_over(c10::Storage(slot.owner), record.layout));
    return slot.handed_out.back().second;
  }
  if (slot.memory == Memory::constant) {
    return at_index(tensors_, value).clone();
  }
  const at::Tensor& source = source_of(record.storage);
  if (record.layout.offset == 0 && record.layout.dtype == source.scalar_type() &&
      source.sizes() == c10::IntArrayRef(record.layout.sizes) &&
      source.strides() == c10::IntArrayRef(record.layout.strides)) {
    return source;
  }
  const c10::InferenceMode as_source(source.is_inference());
  const auto bytes = source.storage_offset() * static_cast<std::int64_t>(source.itemsize());
  return tensor_over(source.storage(), record.layout,
                     bytes / static_cast<std::int64_t>(c10::elementSize(record.layout.dtype)));
}

void Tape::set_gradients(const HostCall& call) {
  for (const auto& [held, value] : call.gradients) {
    at_index(recording_.held, held).mutable_grad() = hand_out(value);
  }
}

Tensors Tape::outputs() {
  Tensors out;
  out.reserve(recording_.outputs.size());
  for (const int value : recording_.outputs) {
    out.push_back(hand_out(value));
  }
  forget_outputs(max_kept);
  inputs_ = {};
  return out;
}

void Tape::forget_outputs(std::size_t kept_bytes) {
  for (Slot& slot : slots_) {
    if (slot.memory == Memory::output && slot.owner && slot.owner->nbytes() > kept_bytes) {
      slot.handed_out.clear();
      slot.owner.reset();
      slot.data = nullptr;  // the next replay allocates: no step reads the old address before
    }
  }
}

Tensors Tape::replay(std::span<const at::Tensor> inputs) {
  begin(inputs);
  measured_ += measures_ ? 1 : 0;
  for (const Piece& piece : pieces_) {
    if (!run(piece)) {
      return {};
    }
    if (piece.host_call < 0) {
      break;
    }
    const HostCall& call = at_index(recording_.host_calls, piece.host_call);
    if (!call.gradients.empty()) {
      set_gradients(call);
    } else if (call.again) {
      Tensors given;
      for (const int value : call.values) {
        given.push_back(hand_out(value));
      }
      call.again(given);
    }
  }
  return outputs();
}

void Tape::measure(bool on) {
  measures_ = on;
  if (on) {
    measured_ = 0;
    for (Step& step : steps_) {
      step.seconds = 0.0;
    }
  }
}

std::string Tape::batch_text() const {
  std::vector<std::string> texts;
  for (const Storage& storage : recording_.storages) {
    if (storage.origin == Origin::input) {
      for (const Value& value : recording_.values) {
        if (&at_index(recording_.storages, value.storage) == &storage) {
          texts.push_back(text_of(value.layout));
          break;
        }
      }
    }
  }
  return join(texts);
}

std::string Tape::text() const {
  std::string out =
      concat(report_.recorded, " operators recorded: ", report_.calls, " calls, ", report_.views, " views, ",
             report_.dead, " dead, ", report_.constants, " constant; ", report_.direct, " calls without dispatch and ",
             report_.own, " by danling's kernels; ", report_.planned, " calls write into ", report_.arena_bytes,
             " bytes of planned memory (", report_.sum_bytes, " without sharing), ", report_.in_place, " in place\n");
  for (const Piece& piece : pieces_) {
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      const Step& step = steps_[i];
      const Call& call = recording_.calls[step.call];
      std::string line = measured_ > 0 ? to_fixed(step.seconds / static_cast<double>(measured_) * 1e6, 2) : "";
      line.insert(0, line.size() < 10 ? 10 - line.size() : 0, ' ');
      line += concat(step.own      ? "  own     "
                     : step.kernel ? "  direct  "
                                   : "  boxed   ",
                     toString(call.op.operator_name()));
      if (!step.kernel && !(step.op == call.op)) {
        line += concat(" as ", toString(step.op.operator_name()));
      }
      for (const Argument& result : call.results) {
        for (const int value : result.values) {
          line += value < 0 ? std::string(" -") : concat("  ", text_of(at_index(recording_.values, value).layout));
        }
      }
      const char* memory = step.adopts.empty() ? "" : "  own memory";
      out += concat(line, memory, call.backward ? "  backward" : "", "\n");
    }
    if (piece.host_call >= 0) {
      out += concat("            - ", at_index(recording_.host_calls, piece.host_call).name, "\n");
    }
  }
  return out;
}

}  // namespace danling::inline v0::tape
