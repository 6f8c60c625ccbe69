#include <tape/recorder.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <string_view>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/library.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <tape/traits.hpp>

namespace danling::inline v0::tape {
namespace {

using detail::recording_key;

std::atomic<Recorder*> active{nullptr};  // one per process, also for autograd's threads, which inherit the included key

}  // namespace

StepObserver::~StepObserver() = default;

ObserverScope::ObserverScope(Observer* observer) : previous_(std::exchange(detail::observer_of_thread, observer)) {
  detail::observed_threads.fetch_add(1, std::memory_order_relaxed);
}
ObserverScope::~ObserverScope() {
  detail::observer_of_thread = previous_;
  detail::observed_threads.fetch_sub(1, std::memory_order_relaxed);
}

// ---- the dispatcher -------------------------------------------------------------------------------------------------

void Recorder::intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, recording_key);
  Recorder* const recorder = active.load(std::memory_order_acquire);
  if (recorder == nullptr || (!op.hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
                              op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd))) {
    op.redispatchBoxed(below, stack);  // the operators that it calls are recorded
    return;
  }
  Call call = recorder->begin(op, *stack);
  {
    const c10::impl::ExcludeDispatchKeyGuard inside(recording_key);
    op.redispatchBoxed(below, stack);
  }
  recorder->end(std::move(call), *stack);
}

Recorder::Turn::Turn(Recorder* recorder) {
  static const bool registered = [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(recording_key)) {
      return false;  // LibTorch or another library uses the key
    }
    static torch::Library library(torch::Library::IMPL, "_", recording_key, __FILE__, __LINE__);
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&Recorder::intercept>());
    return true;
  }();
  check<StateError>(registered, "tape.record",
                    "expected a process in which no other library handles LibTorch's dispatch key Fake, got one with "
                    "such a library; do not set compile.enable");
  Recorder* expected = nullptr;
  check<StateError>(active.compare_exchange_strong(expected, recorder), "tape.record",
                    "expected no other recording in this process, got one in progress");
}

Recorder::Turn::~Turn() { active.store(nullptr, std::memory_order_release); }

Recorder::Recorder(const StepTensors& surroundings) {
  recording_.names = surroundings.names;
  recording_.live = surroundings.live;
  for (std::size_t i = 0; i < surroundings.inputs.size(); ++i) {
    add_source(surroundings.inputs[i], Origin::input, static_cast<int>(i));
    if (const at::Tensor& input = surroundings.inputs[i]; input.defined() && input.is_leaf()) {
      input_gradients_.emplace_back(input, input.grad());
    }
  }
  for (const at::Tensor& input : surroundings.inputs) {
    for (const at::Tensor& held : surroundings.held) {
      if (is_strided(input) && is_strided(held) && input.is_alias_of(held)) {
        mark_unrecordable("a tensor of the batch is memory of the model");
      }
    }
  }
  for (std::size_t i = 0; i < surroundings.held.size(); ++i) {
    note_held(surroundings.held[i]);
    add_source(surroundings.held[i], Origin::held, static_cast<int>(i));
    add_source(surroundings.held[i].grad(), Origin::gradient, static_cast<int>(i));
  }
  scope_ = std::make_unique<ObserverScope>(this);
  included_ = std::make_unique<c10::impl::IncludeDispatchKeyGuard>(recording_key);
}

Recorder::~Recorder() = default;

// ---- storages and values --------------------------------------------------------------------------------------------

int Recorder::add_storage(Storage storage, const at::Tensor& tensor) {
  recording_.storages.push_back(std::move(storage));
  values_of_.emplace_back();
  recording_.memory.push_back(tensor.storage().getWeakStorageImpl());
  return static_cast<int>(recording_.storages.size()) - 1;
}

void Recorder::add_source(const at::Tensor& tensor, Origin origin, int source) {
  if (!is_strided(tensor)) {
    return;
  }
  const std::int64_t bytes = layout_of(tensor).bytes();
  const int id = add_storage({.origin = origin, .source = source, .bytes = bytes}, tensor);
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  sources_[tensor.storage().unsafeGetStorageImpl()].push_back({begin, begin + bytes, id});
}

/// @param layout  receives the offset within the recording's storage
int Recorder::storage_of(const at::Tensor& tensor, Layout& layout) {
  const auto* impl = tensor.storage().unsafeGetStorageImpl();
  if (const auto made = made_.find(impl); made != made_.end()) {
    return made->second;
  }
  const auto* begin = static_cast<const char*>(tensor.const_data_ptr());
  const auto* end = begin + layout.bytes();
  const auto find = [&](const std::vector<Source>& sources) -> int {
    const Source* best = nullptr;
    for (const Source& source : sources) {
      const bool holds = begin >= source.begin && end <= source.end &&
                         (begin - source.begin) % static_cast<std::ptrdiff_t>(tensor.element_size()) == 0;
      if (holds && (best == nullptr || source.end - source.begin < best->end - best->begin)) {
        best = &source;
      }
    }
    if (best == nullptr) {
      return -1;
    }
    layout.offset = (begin - best->begin) / static_cast<std::ptrdiff_t>(tensor.element_size());
    return best->storage;
  };
  const auto sources = sources_.find(impl);
  if (const int found = sources == sources_.end() ? -1 : find(sources->second); found >= 0) {
    return found;
  }
  for (std::size_t i = 0; i < recording_.live.size(); ++i) {  // variables may be assigned in the middle of the step
    const at::Tensor& live = *recording_.live[i];
    if (live.defined() && live.has_storage() && live.storage().unsafeGetStorageImpl() == impl) {
      add_source(live, Origin::live, static_cast<int>(i));
      if (const int found = find(sources_.at(impl)); found >= 0) {
        return found;
      }
    }
  }
  if (sources != sources_.end() && std::any_of(sources->second.begin(), sources->second.end(), [&](const Source& one) {
        return at_index(recording_.storages, one.storage).origin == Origin::input;
      })) {
    mark_unrecordable("it reads memory of a batch tensor's storage outside of the tensor");
  }
  // A tensor of the program without a name. Keeps the tensor itself, since it may get other memory.
  note_held(tensor.grad_fn() == nullptr ? tensor : tensor.detach());
  recording_.names.emplace_back();
  add_source(tensor, Origin::held, static_cast<int>(recording_.held.size()) - 1);
  layout.offset = 0;
  return static_cast<int>(recording_.storages.size()) - 1;
}

void Recorder::note_held(const at::Tensor& tensor) {
  const bool strided = is_strided(tensor);
  recording_.held.push_back(tensor);
  recording_.layouts.push_back(strided ? layout_of(tensor) : Layout());
  recording_.wants_gradients.push_back(tensor.requires_grad());
  memory_.push_back(strided ? tensor.const_data_ptr() : nullptr);
  gradients_.push_back(tensor.grad());
}

int Recorder::value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return -1;
  }
  Layout layout = layout_of(tensor);
  const int storage = storage_of(tensor, layout);
  auto& known = values_of_[static_cast<std::size_t>(storage)];
  for (const int value : known) {
    if (recording_.values[static_cast<std::size_t>(value)].layout == layout) {
      return value;
    }
  }
  recording_.values.push_back({storage, std::move(layout)});
  known.push_back(static_cast<int>(recording_.values.size()) - 1);
  return known.back();
}

/// Saves the content of a tensor that the program filled outside of operators or created itself.
void Recorder::note_read(int storage, const at::Tensor& tensor) {
  Storage& read = recording_.storages[static_cast<std::size_t>(storage)];
  const bool filled_on_host = read.origin == Origin::made && !read.written;
  const bool found = read.origin == Origin::held && recording_.names[static_cast<std::size_t>(read.source)].empty();
  if ((filled_on_host || found) && !read.content.defined()) {
    const c10::NoGradGuard no_grad;
    const NoRecordGuard suspended;
    const auto bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
    const auto copy = [](const at::Tensor& of, std::int64_t begin, std::int64_t size) {
      at::Tensor whole = at::empty({0}, of.options().dtype(at::kByte).requires_grad(false));
      whole.set_(of.storage(), begin, {size}, {1});
      return whole.clone();
    };
    if (filled_on_host && bytes <= max_constant) {
      read.content = copy(tensor, 0, bytes);
    } else if (found && read.bytes <= max_constant) {  // all of it, whichever part is read first
      const at::Tensor& all = recording_.held[static_cast<std::size_t>(read.source)];
      read.content = copy(all, all.storage_offset() * static_cast<std::int64_t>(all.element_size()), read.bytes);
    }
    if (filled_on_host && !read.content.defined()) {
      mark_unrecordable(
          concat("a tensor of ", bytes, " bytes is filled outside of LibTorch's operators in each step; make it once"));
    }
  }
  if (read.origin == Origin::held && !recording_.names[static_cast<std::size_t>(read.source)].empty()) {
    after_ = read.source;
  }
}

Argument Recorder::argument_of(const c10::IValue& value) {
  Argument out;
  if (value.isTensor()) {
    out.kind = Argument::Kind::tensor;
    out.values.push_back(value_of(value.toTensor()));
  } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    const auto items = value.toListRef();
    const bool tensors = std::any_of(items.begin(), items.end(), [](const auto& item) { return item.isTensor(); });
    if (tensors) {
      out.kind = Argument::Kind::list;
      for (const auto& item : items) {
        out.values.push_back(item.isTensor() ? value_of(item.toTensor()) : -1);
      }
      out.constant = c10::IValue(c10::impl::GenericList(value.toList().elementType()));
    } else {
      out.constant = value;
    }
  } else {
    out.constant = value;
  }
  return out;
}

/// Attributes a write to one of the outside tensors that share the memory.
void Recorder::check_shared(int storage, const at::Tensor& tensor, const Call& call) {
  const auto sources = sources_.find(tensor.storage().unsafeGetStorageImpl());
  if (sources == sources_.end()) {
    return;
  }
  const auto own = std::find_if(sources->second.begin(), sources->second.end(),
                                [storage](const Source& source) { return source.storage == storage; });
  for (const Source& other : sources->second) {
    const bool overlaps = own != sources->second.end() && other.begin < own->end && own->begin < other.end;
    if (overlaps && (other.begin != own->begin || other.end != own->end)) {
      mark_unrecordable(concat("it writes where two tensors overlap: ", place_of(recording_, call)));
    }
  }
}

bool Recorder::check_tensor(const at::Tensor& tensor, const Call& call) {
  const char* const kind = unsupported_reason(tensor);
  if (kind != nullptr) {
    mark_unrecordable(concat(kind, " in ", place_of(recording_, call)));
  }
  return kind == nullptr;
}

/// Returns the value of a tensor that leaves the step.
int Recorder::value_to_keep(const at::Tensor& tensor, const std::string& place) {
  if (!tensor.defined()) {
    return -1;
  }
  if (const char* const kind = unsupported_reason(tensor); kind != nullptr) {
    mark_unrecordable(concat(kind, " in ", place));
    return -1;
  }
  const int value = value_of(tensor);
  note_read(at_index(recording_.values, value).storage, tensor);
  return value;
}

// ---- calls ----------------------------------------------------------------------------------------------------------

Call Recorder::begin(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::lock_guard lock(mutex_);
  const NoRecordGuard suspended;
  const auto& schema = op.schema();
  const std::string& name = schema.name();
  Call call{.op = op, .with_gradients = c10::GradMode::is_enabled(), .backward = backward_, .after = after_};
  if (!recording_.refusal.empty()) {
    return call;
  }
  const std::size_t count = schema.arguments().size();
  const bool has_tag = op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
  call.guard = name == "aten::equal";
  call.random = op.hasTag(at::Tag::nondeterministic_seeded);
  bool returns_view = !schema.returns().empty();
  for (const auto& result : schema.returns()) {
    returns_view = returns_view && result.alias_info() != nullptr && !result.alias_info()->isWrite();
  }
  const bool changes_shape = op.hasTag(at::Tag::inplace_view);  // of the tensor, not its content: t_, unsqueeze_
  call.is_view = returns_view || changes_shape || name == "aten::_unsafe_view" || reads_shapes(name);
  if (changes_memory(name)) {
    mark_unrecordable(concat("it replaces the memory of a tensor or changes its size: ", place_of(recording_, call)));
    return call;
  }
  if ((has_tag && !call.guard && !is_index_of_numbers(name, stack)) || reads_on_host(name)) {
    mark_unrecordable(
        concat("the host reads a value, as item() does, or a shape depends on one: ", place_of(recording_, call)));
    return call;
  }
  bool strided = true;
  for (std::size_t i = 0; i < count && strided; ++i) {
    visit_tensors(torch::jit::peek(stack, i, count),
                  [&](const at::Tensor& tensor) { strided = strided && check_tensor(tensor, call); });
  }
  if (!strided) {
    return call;
  }
  const auto hidden = hidden_writes(name);
  for (std::size_t i = 0; i < count; ++i) {
    const c10::IValue& given = torch::jit::peek(stack, i, count);
    const auto& declared = schema.arguments()[i];
    call.arguments.push_back(argument_of(given));
    const bool writes = (!changes_shape && declared.alias_info() != nullptr && declared.alias_info()->isWrite()) ||
                        std::find(hidden.begin(), hidden.end(), i) != hidden.end();
    const bool reads = !call.is_view && !(writes && (declared.kwarg_only() || only_writes(name)));
    std::size_t position = 0;
    for (const int value : call.arguments.back().values) {
      const std::size_t item = position++;
      if (value < 0) {
        continue;
      }
      const int storage = recording_.values[static_cast<std::size_t>(value)].storage;
      if (reads) {
        note_read(storage, given.isTensor() ? given.toTensor() : given.toListRef()[item].toTensor());
      }
      if (writes) {
        check_shared(storage, given.isTensor() ? given.toTensor() : given.toListRef()[item].toTensor(), call);
        recording_.storages[static_cast<std::size_t>(storage)].written = true;
        call.writes.push_back(storage);
      }
    }
  }
  return call;
}

namespace {

/// True if a tensor that the call writes has changed its shape.
bool is_resized(const Call& call, const Argument& result) {
  return std::any_of(result.values.begin(), result.values.end(), [&](int value) {
    return std::none_of(call.arguments.begin(), call.arguments.end(), [value](const Argument& argument) {
      return std::find(argument.values.begin(), argument.values.end(), value) != argument.values.end();
    });
  });
}

}  // namespace

void Recorder::end(Call call, const torch::jit::Stack& stack) {
  const std::lock_guard lock(mutex_);
  const NoRecordGuard suspended;
  if (!recording_.refusal.empty()) {
    return;
  }
  const std::size_t count = call.op.schema().returns().size();
  const bool empty = allocates_only(call.op.schema().name());
  const int number = static_cast<int>(recording_.calls.size());
  bool strided = true;
  for (std::size_t i = 0; i < count && strided; ++i) {
    const c10::IValue& result = torch::jit::peek(stack, i, count);
    visit_tensors(result, [&](const at::Tensor& tensor) {
      strided = strided && check_tensor(tensor, call);
      const auto* impl = strided ? tensor.storage().unsafeGetStorageImpl() : nullptr;
      if (strided && !made_.contains(impl) && !sources_.contains(impl)) {
        made_[impl] = add_storage({.origin = Origin::made,
                                   .source = number,
                                   .written = !empty,
                                   .bytes = static_cast<std::int64_t>(tensor.storage().nbytes())},
                                  tensor);
      }
    });
    if (strided) {
      call.results.push_back(argument_of(result));
      const auto* alias = call.op.schema().returns()[i].alias_info();
      if (alias != nullptr && alias->isWrite() && !call.is_view && is_resized(call, call.results.back())) {
        mark_unrecordable(concat("an operator resizes its result: ", place_of(recording_, call)));
      }
      call.guard = call.guard && call.results.back().kind == Argument::Kind::constant;
      if (call.results.back().kind == Argument::Kind::constant && !call.guard &&
          !reads_shapes(call.op.schema().name()) && !result.isNone() &&
          !(result.isList() && result.toListRef().empty())) {
        mark_unrecordable(concat("the host reads a value: ", place_of(recording_, call)));
      }
    }
  }
  recording_.calls.push_back(std::move(call));
}

}  // namespace danling::inline v0::tape
