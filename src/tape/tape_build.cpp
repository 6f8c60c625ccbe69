// Builds the calls of a replay from a recording: which operators need no call, and the form of the others.
#include <algorithm>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <tape/tape.hpp>
#include <tape/traits.hpp>

namespace danling::inline v0::tape {
namespace {

/// Creates a storage without memory.
c10::intrusive_ptr<c10::StorageImpl> make_storage(std::int64_t bytes) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<std::size_t>(bytes),
                                               c10::DataPtr(nullptr, c10::kCPU), /*allocator=*/nullptr,
                                               /*resizable=*/false);
}

/// True if the call allocates the memory of the value.
bool is_fresh(const Recording& recording, int value, std::size_t call) {
  const Storage& storage = at_index(recording.storages, at_index(recording.values, value).storage);
  return storage.origin == Origin::made && storage.source == static_cast<int>(call);
}

bool is_written(const Recording& recording, int storage) {
  return std::any_of(recording.calls.begin(), recording.calls.end(), [storage](const Call& call) {
    return std::find(call.writes.begin(), call.writes.end(), storage) != call.writes.end();
  });
}

}  // namespace

at::Tensor tensor_over(c10::Storage storage, const Layout& layout, std::int64_t offset) {
  auto out = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                      c10::scalarTypeToTypeMeta(layout.dtype));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes, layout.strides, offset + layout.offset);
  return out;
}

Tape::Tape(Recording recording, std::shared_ptr<Arena> arena)
    : recording_(std::move(recording)), arena_(std::move(arena)) {
  const at::NoGradGuard no_grad;
  recording_.memory.clear();
  const std::vector<bool> escapes = escaping_storages();
  make_tensors();
  build(needed_calls(escapes), escapes);
  plan(escapes);
  list_generators();
}

void Tape::list_generators() {
  generators_.push_back(at::detail::getDefaultCPUGenerator());
  for (const Call& call : recording_.calls) {
    for (const Argument& argument : call.arguments) {
      if (argument.kind == Argument::Kind::constant && argument.constant.isGenerator()) {
        const at::Generator generator = argument.constant.toGenerator();
        if (std::find(generators_.begin(), generators_.end(), generator) == generators_.end()) {
          generators_.push_back(generator);
        }
      }
    }
  }
}

bool Tape::reads_unnamed() const {
  return std::any_of(recording_.storages.begin(), recording_.storages.end(), [this](const Storage& storage) {
    return storage.origin == Origin::constant ||
           (storage.origin == Origin::held && at_index(recording_.names, storage.source).empty());
  });
}

Tensors Tape::written(std::span<const at::Tensor> inputs, const Tensors& buffers) {
  Tensors out = buffers;
  inputs_ = inputs;
  for (std::size_t i = 0; i < recording_.storages.size(); ++i) {
    const int storage = static_cast<int>(i);
    const Origin origin = recording_.storages[i].origin;
    if (origin != Origin::made && origin != Origin::constant && is_written(recording_, storage)) {
      const at::Tensor& tensor = source_of(storage);
      const bool known =
          std::any_of(out.begin(), out.end(), [&](const at::Tensor& one) { return one.is_same(tensor); });
      if (tensor.defined() && !known) {
        out.push_back(tensor);
      }
    }
  }
  return out;
}

/// Returns the storages that the program may hold after the step: outputs, gradients, arguments of host calls.
std::vector<bool> Tape::escaping_storages() const {
  std::vector<bool> out(recording_.storages.size(), false);
  const auto mark = [&](int value) {
    if (value >= 0) {
      out[static_cast<std::size_t>(at_index(recording_.values, value).storage)] = true;
    }
  };
  for (const HostCall& call : recording_.host_calls) {
    for (const int value : call.values) {
      mark(value);
    }
    for (const auto& gradient : call.gradients) {
      mark(gradient.second);
    }
  }
  for (const int value : recording_.outputs) {
    mark(value);
  }
  return out;
}

std::vector<bool> Tape::needed_calls(const std::vector<bool>& escapes) const {
  std::vector<bool> read = escapes;
  std::vector<bool> needed(recording_.calls.size(), false);
  for (std::size_t i = recording_.calls.size(); i-- > 0;) {
    const Call& call = recording_.calls[i];
    // Operators without results are assertions, which must run.
    bool need = call.random || call.guard || call.op.schema().returns().empty();
    for (const int storage : call.writes) {
      need = need || at_index(recording_.storages, storage).origin != Origin::made || at_index(read, storage);
    }
    for (const Argument& result : call.results) {
      for (const int value : result.values) {
        need = need || (value >= 0 && at_index(read, at_index(recording_.values, value).storage));
      }
    }
    needed[i] = need;
    if (need) {
      for (const Argument& argument : call.arguments) {
        for (const int value : argument.values) {
          if (value >= 0) {
            at_index(read, at_index(recording_.values, value).storage) = true;
          }
        }
      }
    }
  }
  return needed;
}

void Tape::make_tensors() {
  for (const Storage& storage : recording_.storages) {
    Slot slot{.storage = make_storage(storage.bytes)};
    if (storage.origin == Origin::constant) {
      slot.memory = Memory::constant;
      slot.storage =
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.content.storage().unsafeGetStorageImpl());
    }
    slots_.push_back(std::move(slot));
  }
  for (const Value& value : recording_.values) {
    tensors_.push_back(tensor_over(c10::Storage(at_index(slots_, value.storage).storage), value.layout));
    if (value.layout.wrapped_number) {
      tensors_.back().unsafeGetTensorImpl()->set_wrapped_number(true);
    }
  }
}

c10::IValue Tape::bound(const Argument& argument) const {
  const auto tensor = [this](int value) { return value < 0 ? at::Tensor() : at_index(tensors_, value); };
  if (argument.kind == Argument::Kind::tensor) {
    return c10::IValue(tensor(argument.values.front()));
  }
  if (argument.kind == Argument::Kind::list) {
    c10::impl::GenericList list(argument.constant.toList().elementType());
    for (const int value : argument.values) {
      list.push_back(value < 0 ? c10::IValue() : c10::IValue(tensor(value)));
    }
    return list;
  }
  return argument.constant;
}

/// Builds the steps, and the pieces between host calls.
void Tape::build(const std::vector<bool>& needed, const std::vector<bool>& escapes) {
  const auto& host_calls = recording_.host_calls;
  std::size_t next_host_call = 0;
  std::size_t begin = 0;
  const auto end_pieces_before = [&](std::size_t call) {
    for (; next_host_call < host_calls.size() && host_calls[next_host_call].place == call; ++next_host_call) {
      pieces_.push_back({begin, steps_.size(), static_cast<int>(next_host_call)});
      begin = steps_.size();
    }
  };
  for (std::size_t i = 0; i < recording_.calls.size(); ++i) {
    end_pieces_before(i);
    if (!needed[i]) {
      ++report_.dead;
      continue;
    }
    const std::vector<int> fresh = fresh_values(i);
    if (computes_nothing(recording_.calls[i], fresh)) {
      ++report_.views;
    } else if (!add_constant(i, fresh, escapes)) {
      add_step(i, fresh, escapes);
    }
  }
  end_pieces_before(recording_.calls.size());
  pieces_.push_back({begin, steps_.size(), -1});
  report_.recorded = recording_.calls.size();
  report_.calls = steps_.size();
}

/// Returns the results whose memory the call allocates.
std::vector<int> Tape::fresh_values(std::size_t number) const {
  std::vector<int> out;
  for (const Argument& result : recording_.calls[number].results) {
    std::copy_if(result.values.begin(), result.values.end(), std::back_inserter(out),
                 [&](int value) { return value >= 0 && is_fresh(recording_, value, number); });
  }
  return out;
}

/// True if the results are only addresses: a view, or memory without content.
bool Tape::computes_nothing(const Call& call, const std::vector<int>& fresh) const {
  const auto& schema = call.op.schema();
  return allocates_only(schema.name()) ||
         (fresh.empty() && call.writes.empty() && !call.random && !call.guard && !schema.returns().empty());
}

/// Computes a small constant result once, now.
/// @return false if the call is not of this kind
bool Tape::add_constant(std::size_t number, const std::vector<int>& fresh, const std::vector<bool>& escapes) {
  const Call& call = recording_.calls[number];
  if (fresh.size() != 1 || !makes_constant(call)) {
    return false;
  }
  const int storage = at_index(recording_.values, fresh.front()).storage;
  if (at_index(escapes, storage) || at_index(recording_.storages, storage).bytes > max_constant ||
      is_written(recording_, storage)) {
    return false;
  }
  for (const Argument& argument : call.arguments) {
    stack_.push_back(bound(argument));
  }
  call.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
  const at::Tensor result = torch::jit::pop(stack_).toTensor();
  stack_.clear();
  Slot& slot = at_index(slots_, storage);
  slot.memory = Memory::constant;
  slot.owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(result.storage().unsafeGetStorageImpl());
  bind(storage, result.const_data_ptr());
  ++report_.constants;
  return true;
}

void Tape::add_step(std::size_t number, const std::vector<int>& fresh, const std::vector<bool>& escapes) {
  const Call& call = recording_.calls[number];
  Step step{.op = call.op, .with_gradients = call.with_gradients, .guard = call.guard, .call = number};
  // An out variant returns a tensor of new memory for each result.
  const bool has_own_results = !fresh.empty() && fresh.size() == call.results.size() &&
                               std::all_of(call.results.begin(), call.results.end(), [](const Argument& result) {
                                 return result.kind == Argument::Kind::tensor && result.values.front() >= 0;
                               });
  const std::optional<OutForm> form = has_own_results ? out_form(call) : std::nullopt;
  bind_arguments(step, form);
  if (form || fresh.empty()) {
    choose_kernel(step, form.has_value());
  }
  for (const int value : fresh) {
    const int storage = at_index(recording_.values, value).storage;
    at_index(slots_, storage).memory = at_index(escapes, storage) ? Memory::output
                                       : form                     ? Memory::planned
                                                                  : Memory::adopted;
  }
  report_.planned += form ? 1 : 0;
  has_guards_ = has_guards_ || call.guard;
  steps_.push_back(std::move(step));
}

/// Binds the operator's arguments in order, and marks results that allocate their memory.
void Tape::bind_arguments(Step& step, const std::optional<OutForm>& form) const {
  const Call& call = recording_.calls[step.call];
  const auto add = [&](const std::vector<Argument>& arguments) {
    for (const Argument& argument : arguments) {
      step.arguments.push_back(bound(argument));
    }
  };
  if (form) {
    step.op = form->op;
    add(form->results_last ? form->arguments : call.results);
    add(form->results_last ? call.results : form->arguments);
    return;
  }
  add(call.arguments);
  for (const Argument& result : call.results) {
    if (result.kind == Argument::Kind::constant && !result.constant.isTensorList()) {
      step.adopts.push_back(-1);
    }
    for (const int value : result.values) {
      step.adopts.push_back(value >= 0 && is_fresh(recording_, value, step.call) ? value : -1);
    }
  }
}

/// Chooses a kernel without dispatch, if there is one.
void Tape::choose_kernel(Step& step, bool in_given_memory) {
  const BoundCall call{recording_.calls[step.call], tensors_};
  step.kernel = own_kernel(call);
  step.own = static_cast<bool>(step.kernel);
  report_.own += step.own ? 1 : 0;
  if (!step.kernel && in_given_memory) {
    step.kernel = direct_kernel(call);
    report_.direct += step.kernel ? 1 : 0;
  }
}

}  // namespace danling::inline v0::tape
