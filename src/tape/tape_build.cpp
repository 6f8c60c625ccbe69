// From a recording to the calls of a replay: what needs no call, where results lie.
#include <tape/tape.hpp>

#include <algorithm>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorImpl.h>

#include <tape/operators.hpp>
#include <tape/traits.hpp>

namespace danling::inline v0::tape {
namespace {

constexpr std::int64_t max_constant = 64 * 1024;

/// A storage without memory of its own.
c10::intrusive_ptr<c10::StorageImpl> make_storage(std::int64_t bytes, c10::Device device) {
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), static_cast<std::size_t>(bytes),
                                               c10::DataPtr(nullptr, device), /*allocator=*/nullptr,
                                               /*resizable=*/false);
}

}  // namespace

at::Tensor tensor_over(c10::Storage storage, const Layout& layout, std::int64_t offset) {
  const auto backend = storage.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
  auto out = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(backend),
                                                      c10::scalarTypeToTypeMeta(layout.dtype));
  out.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes, layout.strides, offset + layout.offset);
  return out;
}

Tape::Tape(Recording recording, std::shared_ptr<Arena> arena)
    : recording_(std::move(recording)), arena_(std::move(arena)) {
  const at::NoGradGuard no_grad;
  recording_.memory.clear();
  const std::vector<bool> escapes = escaping_storages();
  const std::vector<bool> needed = needed_calls(escapes);
  make_tensors();
  build(needed, escapes);
  report_.recorded = recording_.calls.size();
  generators_.push_back(at::detail::getDefaultCPUGenerator());
  for (const Call& call : recording_.calls) {
    for (const Argument& argument : call.arguments) {
      if (argument.kind == Argument::Kind::constant && argument.constant.isGenerator()) {
        generators_.push_back(argument.constant.toGenerator());
      }
    }
    if (call.key == c10::DispatchKey::CUDA && call.random) {
      generators_.push_back(at::globalContext().defaultGenerator(at::Device(at::kCUDA)));
    }
  }
}

bool Tape::reads_unnamed() const {
  return std::any_of(recording_.storages.begin(), recording_.storages.end(), [this](const Storage& storage) {
    return storage.origin == Origin::constant ||
           (storage.origin == Origin::held && at_index(recording_.names, storage.source).empty());
  });
}

Tensors Tape::changed(std::span<const at::Tensor> inputs, const Tensors& buffers) {
  Tensors out = buffers;
  inputs_ = inputs;
  for (const Call& call : recording_.calls) {
    for (const int storage : call.writes) {
      if (at_index(recording_.storages, storage).origin != Origin::made) {
        if (const at::Tensor& tensor = source_of(storage); tensor.defined()) {
          out.push_back(tensor);
        }
      }
    }
  }
  return out;
}

/// Those that the program may hold after the step: outputs, gradients, what host calls get.
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
    bool need = call.random || call.guard || call.op.schema().returns().empty();  // the latter check something
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
    Slot slot{.storage = make_storage(storage.bytes, storage.device)};
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
    const int value = argument.values.front();
    return value < 0 ? c10::IValue(at::Tensor()) : c10::IValue(at_index(tensors_, value));
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

void Tape::build(const std::vector<bool>& needed, const std::vector<bool>& escapes) {
  std::vector<int> writes(recording_.storages.size(), 0);
  for (const Call& call : recording_.calls) {
    for (const int storage : call.writes) {
      ++at_index(writes, storage);
    }
  }
  const auto is_fresh = [&](int value, std::size_t call) {
    const Storage& storage = at_index(recording_.storages, at_index(recording_.values, value).storage);
    return storage.origin == Origin::made && storage.source == static_cast<int>(call);
  };
  std::vector<std::vector<std::size_t>> touches(recording_.storages.size());
  std::size_t next_host_call = 0;
  std::size_t begin = 0;
  const auto end_piece = [&](int host_call) {
    pieces_.push_back({begin, steps_.size(), host_call});
    begin = steps_.size();
  };
  for (std::size_t i = 0; i <= recording_.calls.size(); ++i) {
    while (next_host_call < recording_.host_calls.size() && recording_.host_calls[next_host_call].place == i) {
      end_piece(static_cast<int>(next_host_call++));
    }
    if (i == recording_.calls.size()) {
      break;
    }
    const Call& call = recording_.calls[i];
    if (!needed[i]) {
      ++report_.dead;
      continue;
    }
    std::vector<int> fresh;
    for (const Argument& result : call.results) {
      for (const int value : result.values) {
        if (value >= 0 && is_fresh(value, i)) {
          fresh.push_back(value);
        }
      }
    }
    if (is_empty(call.op.schema().name()) ||
        (fresh.empty() && call.writes.empty() && !call.random && !call.guard && !call.op.schema().returns().empty())) {
      ++report_.views;
      continue;
    }
    if (fresh.size() == 1 && makes_constant(call)) {
      const int storage = at_index(recording_.values, fresh.front()).storage;
      if (at_index(writes, storage) == 0 && !at_index(escapes, storage) &&
          at_index(recording_.storages, storage).bytes <= max_constant) {
        add_constant(i);
        continue;
      }
    }
    Step step{.op = call.op, .keys = c10::DispatchKeySet(call.key), .with_gradients = call.with_gradients, .call = i};
    std::size_t tensors = 0;
    for (const Argument& result : call.results) {
      tensors += result.kind == Argument::Kind::tensor && result.values.front() >= 0 ? 1 : 0;
    }
    std::optional<OutForm> form;
    if (!fresh.empty() && fresh.size() == call.results.size() && tensors == fresh.size()) {
      form = out_form(call);
    }
    if (form) {
      step.op = form->op;
      const auto add = [&](const std::vector<Argument>& arguments) {
        for (const Argument& argument : arguments) {
          step.arguments.push_back(bound(argument));
        }
      };
      if (form->results_last) {
        add(form->arguments);
        add(call.results);
      } else {
        add(call.results);
        add(form->arguments);
      }
      ++report_.planned;
    } else {
      for (const Argument& argument : call.arguments) {
        step.arguments.push_back(bound(argument));
      }
      for (const Argument& result : call.results) {
        if (result.kind == Argument::Kind::list) {  // of fresh tensors: as a step returns them
          for (const int value : result.values) {
            step.adopts.push_back(value >= 0 && is_fresh(value, i) ? value : -1);
          }
        } else {
          const int value = result.values.empty() ? -1 : result.values.front();
          step.adopts.push_back(value >= 0 && is_fresh(value, i) ? value : -1);
        }
      }
    }
    if (form || fresh.empty()) {
      const BoundCall bound_call{call, tensors_};
      step.kernel = own_kernel(bound_call);
      step.own = static_cast<bool>(step.kernel);
      report_.own += step.own ? 1 : 0;
      if (!step.kernel && form) {
        step.kernel = direct_kernel(bound_call);
        report_.direct += step.kernel ? 1 : 0;
      }
    }
    for (const int value : fresh) {
      const int storage = at_index(recording_.values, value).storage;
      at_index(slots_, storage).memory = at_index(escapes, storage) ? Memory::output
                                         : form                     ? Memory::planned
                                                                    : Memory::adopted;
    }
    step.guard = call.guard;
    has_guards_ = has_guards_ || call.guard;
    const std::size_t number = steps_.size();
    for (const auto* list : {&call.arguments, &call.results}) {
      for (const Argument& argument : *list) {
        for (const int value : argument.values) {
          if (value >= 0) {
            at_index(touches, at_index(recording_.values, value).storage).push_back(number);
          }
        }
      }
    }
    steps_.push_back(std::move(step));
  }
  end_piece(-1);
  report_.calls = steps_.size();
  plan(touches, escapes);
}

/// Computes the call once.
void Tape::add_constant(std::size_t number) {
  const Call& call = recording_.calls[number];
  for (const Argument& argument : call.arguments) {
    stack_.push_back(bound(argument));
  }
  call.op.redispatchBoxed(c10::DispatchKeySet(call.key), &stack_);
  const at::Tensor result = torch::jit::pop(stack_).toTensor();
  stack_.clear();
  const int storage = at_index(recording_.values, call.results.front().values.front()).storage;
  Slot& slot = at_index(slots_, storage);
  slot.memory = Memory::constant;
  slot.owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(result.storage().unsafeGetStorageImpl());
  bind(storage, result.const_data_ptr());
  ++report_.constants;
}

/// Whether no argument shows the value's storage in another layout.
bool Tape::is_read_once(const Call& call, int value) const {
  return std::all_of(call.arguments.begin(), call.arguments.end(), [&](const Argument& argument) {
    return std::all_of(argument.values.begin(), argument.values.end(), [&](int other) {
      return other < 0 || other == value ||
             at_index(recording_.values, other).storage != at_index(recording_.values, value).storage;
    });
  });
}

/// Places the results of calls: over an argument that nobody reads afterwards, where the call allows it, else where
/// nothing lives at the same time.
void Tape::plan(const std::vector<std::vector<std::size_t>>& touches, const std::vector<bool>& escapes) {
  const std::size_t count = recording_.storages.size();
  std::vector<int> group_of(count, -1);
  std::vector<Lifetime> lifetimes;
  std::vector<std::vector<int>> made_at(steps_.size());
  for (std::size_t i = 0; i < count; ++i) {
    Slot& slot = slots_[i];
    const Storage& storage = recording_.storages[i];
    if (storage.origin != Origin::made || slot.memory == Memory::constant || touches[i].empty()) {
      continue;
    }
    if (slot.memory == Memory::bound) {  // made without content
      slot.memory = escapes[i] ? Memory::output : Memory::planned;
    }
    if (slot.memory == Memory::planned) {
      made_at[touches[i].front()].push_back(static_cast<int>(i));
      report_.sum_bytes += storage.bytes;
    } else if (slot.memory == Memory::output) {
      Step& first = steps_[touches[i].front()];
      const bool adopted = std::any_of(first.adopts.begin(), first.adopts.end(), [&](int value) {
        return value >= 0 && at_index(recording_.values, value).storage == static_cast<int>(i);
      });
      if (!adopted) {
        first.allocates.push_back(static_cast<int>(i));
      }
    } else {
      steps_[touches[i].back()].frees.push_back(static_cast<int>(i));
    }
  }
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Call& call = recording_.calls[steps_[s].call];
    for (const int storage : made_at[s]) {
      int over = -1;
      if (is_elementwise(call) && steps_[s].adopts.empty() && call.results.size() == 1) {
        const Layout& result = at_index(recording_.values, call.results.front().values.front()).layout;
        for (const Argument& argument : call.arguments) {
          const int value = argument.kind == Argument::Kind::tensor ? argument.values.front() : -1;
          const int candidate = value < 0 ? -1 : at_index(recording_.values, value).storage;
          if (candidate >= 0 && at_index(group_of, candidate) >= 0 && at_index(touches, candidate).back() == s &&
              at_index(recording_.values, value).layout == result && is_read_once(call, value) &&
              at_index(lifetimes, at_index(group_of, candidate)).last == s) {
            over = at_index(group_of, candidate);
          }
        }
      }
      const Lifetime own{static_cast<std::size_t>(at_index(recording_.storages, storage).bytes), s,
                         at_index(touches, storage).back()};
      if (over >= 0) {
        at_index(lifetimes, over).last = own.last;
        at_index(group_of, storage) = over;
        ++report_.in_place;
      } else {
        at_index(group_of, storage) = static_cast<int>(lifetimes.size());
        lifetimes.push_back(own);
      }
    }
  }
  const Places places = place(lifetimes);
  for (std::size_t i = 0; i < count; ++i) {
    if (group_of[i] >= 0) {
      slots_[i].offset = at_index(places.offsets, group_of[i]);
      planned_.push_back(static_cast<int>(i));
    } else if (slots_[i].memory == Memory::bound) {
      const Origin origin = recording_.storages[i].origin;
      if (origin == Origin::live || origin == Origin::gradient) {
        each_piece_.push_back(static_cast<int>(i));
      } else if (origin == Origin::input || origin == Origin::held) {
        once_.push_back(static_cast<int>(i));
      }
    }
  }
  report_.arena_bytes = static_cast<std::int64_t>(places.bytes);
}

}  // namespace danling::inline v0::tape
