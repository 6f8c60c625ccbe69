#include <tape/recording.hpp>

#include <algorithm>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <danling/core/format.hpp>

namespace danling::inline v0::tape {
namespace {

/// Equal, also where both are nan.
bool same(const c10::IValue& a, const c10::IValue& b) {
  if (a.isDouble() && b.isDouble()) {
    const double x = a.toDouble();
    const double y = b.toDouble();
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (a.isGenerator() && b.isGenerator()) {
    return a.toGenerator() == b.toGenerator();
  }
  if (a.tagKind() != b.tagKind()) {
    return false;
  }
  if (a.isObject() || a.isCapsule() || a.isCustomClass()) {
    return a.is(b);
  }
  return a == b;
}

bool same(const Argument& a, const Argument& b) {
  return a.kind == b.kind && a.values == b.values &&
         (a.kind != Argument::Kind::constant || same(a.constant, b.constant));
}

bool is_written(const Recording& recording, int storage) {
  return std::any_of(recording.calls.begin(), recording.calls.end(), [storage](const Call& call) {
    return std::find(call.writes.begin(), call.writes.end(), storage) != call.writes.end();
  });
}

std::string difference(const Recording& first, const Call& a, const Call& b) {
  if (!(a.op == b.op)) {
    return concat("one step calls ", place_of(first, a), ", the next ", toString(b.op.operator_name()),
                  " in its place");
  }
  if (a.key != b.key || a.arguments.size() != b.arguments.size()) {
    return concat(place_of(first, a), " is on another device in the next step");
  }
  for (std::size_t i = 0; i < a.arguments.size(); ++i) {
    if (!same(a.arguments[i], b.arguments[i])) {
      const std::string& name = a.op.schema().arguments()[i].name();
      return a.arguments[i].kind == Argument::Kind::constant && b.arguments[i].kind == Argument::Kind::constant
                 ? concat("the number ", name, " of ", place_of(first, a),
                          " changes from step to step: ", c10::str(a.arguments[i].constant), ", then ",
                          c10::str(b.arguments[i].constant))
                 : concat(place_of(first, a), " gets another tensor as ", name, " in the next step");
    }
  }
  if (a.results.size() != b.results.size()) {
    return concat(place_of(first, a), " returns something else in the next step");
  }
  for (std::size_t i = 0; i < a.results.size(); ++i) {
    if (!same(a.results[i], b.results[i])) {
      return concat(place_of(first, a), " returns something else in the next step");
    }
  }
  return "";
}

}  // namespace

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return false;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  return x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

std::int64_t Layout::numel() const {
  std::int64_t out = 1;
  for (const std::int64_t size : sizes) {
    out *= size;
  }
  return out;
}

std::int64_t Layout::bytes() const {
  if (numel() == 0) {
    return 0;
  }
  std::int64_t last = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    last += (sizes[i] - 1) * strides[i];
  }
  return (last + 1) * static_cast<std::int64_t>(c10::elementSize(dtype));
}

Layout layout_of(const at::Tensor& tensor) {
  return {.sizes = tensor.sizes().vec(),
          .strides = tensor.strides().vec(),
          .offset = tensor.storage_offset(),
          .dtype = tensor.scalar_type(),
          .wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number()};
}

std::string text_of(const Layout& layout) { return concat(c10::toString(layout.dtype), " [", join(layout.sizes), "]"); }

bool changes_batch(const Recording& recording) {
  return std::any_of(recording.calls.begin(), recording.calls.end(), [&](const Call& call) {
    return std::any_of(call.writes.begin(), call.writes.end(),
                       [&](int storage) { return at_index(recording.storages, storage).origin == Origin::input; });
  });
}

std::string place_of(const Recording& recording, const Call& call) {
  std::string out = toString(call.op.operator_name());
  if (call.after >= 0) {
    out += concat(", after ", recording.names[static_cast<std::size_t>(call.after)], " was read");
  }
  return out + (call.backward ? ", in the backward pass" : "");
}

std::string merge(const Recording& first, Recording& second) {
  for (const Recording* recording : {&first, static_cast<const Recording*>(&second)}) {
    if (!recording->refusal.empty()) {
      return recording->refusal;
    }
  }
  const std::size_t calls = std::min(first.calls.size(), second.calls.size());
  for (std::size_t i = 0; i < calls; ++i) {
    if (std::string text = difference(first, first.calls[i], second.calls[i]); !text.empty()) {
      return text;
    }
  }
  if (first.calls.size() != second.calls.size()) {
    const bool fewer = second.calls.size() == calls;
    const Recording& longer = fewer ? first : second;
    return concat("one step calls ", first.calls.size(), " operators, the next ", second.calls.size(),
                  "; the first that one of them lacks: ", place_of(longer, longer.calls[calls]));
  }
  if (first.host_calls.size() != second.host_calls.size() || first.outputs != second.outputs ||
      first.values.size() != second.values.size() || first.storages.size() != second.storages.size()) {
    return "the step does something else in the next step";
  }
  // Where the condition of a replay fails, the step begins anew: nothing outside of it may have changed by then.
  for (std::size_t i = second.host_calls.empty() ? calls : second.host_calls.front().place; i < calls; ++i) {
    if (second.calls[i].guard) {
      return concat("the host reads a value after ", second.host_calls.front().name, ": ",
                    place_of(second, second.calls[i]));
    }
  }
  for (std::size_t i = 0; i < first.host_calls.size(); ++i) {
    const HostCall& a = first.host_calls[i];
    const HostCall& b = second.host_calls[i];
    if (a.place != b.place || a.name != b.name || a.values != b.values || a.gradients != b.gradients) {
      return a.name == b.name ? concat("the next step gives other tensors to ", a.name)
                              : concat("the next step has ", b.name, " in place of ", a.name);
    }
  }
  for (std::size_t i = 0; i < first.values.size(); ++i) {
    if (first.values[i].storage != second.values[i].storage) {
      return "the step reads another tensor in the next step";
    }
    if (!(first.values[i].layout == second.values[i].layout)) {
      return concat("a tensor ", text_of(first.values[i].layout), " is ", text_of(second.values[i].layout),
                    " in the next step");
    }
  }
  for (std::size_t i = 0; i < first.storages.size(); ++i) {
    const Storage& a = first.storages[i];
    Storage& b = second.storages[i];
    if (a.origin != b.origin || a.source != b.source) {
      return "the step reads another tensor in the next step";
    }
    if (b.origin == Origin::made && (a.content.defined() || b.content.defined())) {
      if (!a.content.defined() || !same_bits(a.content, b.content)) {
        return "a tensor that is filled past LibTorch's operators changes from step to step";
      }
      b.origin = Origin::constant;
      if (is_written(second, static_cast<int>(i))) {
        return "a tensor that is filled past LibTorch's operators is changed in the same step";
      }
    }
    if (b.origin == Origin::held) {
      const auto source = static_cast<std::size_t>(b.source);
      const at::Tensor& before = first.held[static_cast<std::size_t>(a.source)];
      const at::Tensor& now = second.held[source];
      if (before.is_same(now) || (before.is_alias_of(now) && before.const_data_ptr() == now.const_data_ptr())) {
        continue;
      }
      const auto* impl = now.storage().unsafeGetStorageImpl();
      for (std::size_t s = 0; s < first.storages.size(); ++s) {
        if (first.storages[s].origin == Origin::made && first.memory[s]._unsafe_get_target() == impl) {
          return concat("it reads a tensor ", text_of(layout_of(now)), " that the step before has made");
        }
      }
      if (!a.content.defined() || !same_bits(a.content, b.content)) {
        return now.numel() == 1
                   ? std::string("a number that the step makes a tensor of changes from step to step")
                   : concat("a tensor ", text_of(layout_of(now)),
                            " that is neither of the batch nor of the model is another one in each step (a batch of a "
                            "type of the program shows its members by parts())");
      }
      if (is_written(second, static_cast<int>(i))) {
        return concat("a tensor ", text_of(layout_of(now)), " of the program is made and changed in each step");
      }
      b.origin = Origin::constant;  // its memory may be gone after the step
    }
  }
  return "";
}

}  // namespace danling::inline v0::tape
