#include <tape/recording.hpp>

#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isnan.h>
#include <c10/util/StringUtil.h>

#include <danling/core/format.hpp>

namespace danling::inline v0::tape {
namespace {

/// True if equal, or if both are nan.
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

/// Returns, per storage, whether a call changes it.
std::vector<bool> written_storages(const Recording& recording) {
  std::vector<bool> out(recording.storages.size(), false);
  for (const Call& call : recording.calls) {
    for (const int storage : call.writes) {
      out[static_cast<std::size_t>(storage)] = true;
    }
  }
  return out;
}

std::string difference(const Recording& first, const Call& a, const Call& b) {
  if (!(a.op == b.op)) {
    return concat("one step calls ", place_of(first, a), ", the next ", toString(b.op.operator_name()),
                  " in its place");
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

bool is_strided(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && tensor.has_storage() && !tensor.is_nested();
}

const char* unsupported_reason(const at::Tensor& tensor) {
  return tensor.layout() != c10::kStrided ? "a sparse tensor"
         : !is_strided(tensor)            ? "a tensor without a storage"
         : tensor.is_quantized()          ? "a quantized tensor"
         : tensor._is_zerotensor() || tensor.is_conj() || tensor.is_neg()
             ? "a tensor with a lazy conjugation or negation"
         : !tensor.device().is_cpu() ? "a tensor of another device"
                                     : nullptr;
}

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
  if (x.numel() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0) {
    return true;
  }
  if (!x.is_floating_point() && !x.is_complex()) {
    return false;
  }
  const at::Tensor nan = x.isnan();
  return nan.any().item<bool>() && nan.equal(y.isnan()) && same_bits(x.masked_fill(nan, 0), y.masked_fill(nan, 0));
}

std::uint64_t content_hash(const at::Tensor& tensor) {
  constexpr std::uint64_t odd = 0x9E3779B97F4A7C15U;
  constexpr std::size_t lanes = 4;  // one chain of multiplications would take four times as long as reading memory
  constexpr std::size_t block = lanes * sizeof(std::uint64_t);
  const auto* bytes = static_cast<const char*>(tensor.const_data_ptr());
  const auto size = static_cast<std::size_t>(layout_of(tensor).bytes());
  std::array<std::uint64_t, lanes> hashes = {1, 2, 3, 4};
  const auto add = [&](const char* from, std::size_t count) {
    std::array<std::uint64_t, lanes> words = {};
    std::memcpy(words.data(), from, count);
    for (std::size_t k = 0; k < lanes; ++k) {
      hashes[k] = (hashes[k] ^ words[k]) * odd;
      hashes[k] ^= hashes[k] >> 32U;
    }
  };
  std::size_t i = 0;
  for (; i + block <= size; i += block) {
    add(bytes + i, block);
  }
  if (i < size) {
    add(bytes + i, size - i);
  }
  std::uint64_t out = size;
  for (const std::uint64_t hash : hashes) {
    out = (out ^ hash) * odd;
    out ^= out >> 32U;
  }
  return out;
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

namespace {

std::string compare_calls(const Recording& first, const Recording& second) {
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
  return "";
}

/// If a guard fails in a replay, the step starts again eagerly: nothing outside of it may have changed before.
std::string check_guards(const Recording& recording) {
  const auto& hosts = recording.host_calls;
  for (std::size_t i = hosts.empty() ? recording.calls.size() : hosts.front().place; i < recording.calls.size(); ++i) {
    if (recording.calls[i].guard) {
      return concat("the host reads a value after ", hosts.front().name, ": ", place_of(recording, recording.calls[i]));
    }
  }
  return "";
}

std::string compare_host_calls(const Recording& first, const Recording& second) {
  for (std::size_t i = 0; i < first.host_calls.size(); ++i) {
    const HostCall& a = first.host_calls[i];
    const HostCall& b = second.host_calls[i];
    if (a.place != b.place || a.name != b.name || a.values != b.values || a.gradients != b.gradients) {
      return a.name == b.name ? concat("the next step passes other tensors to ", a.name)
                              : concat("the next step has ", b.name, " in place of ", a.name);
    }
  }
  return "";
}

std::string compare_values(const Recording& first, const Recording& second) {
  for (std::size_t i = 0; i < first.values.size(); ++i) {
    if (first.values[i].storage != second.values[i].storage) {
      return "the step reads another tensor in the next step";
    }
    if (!(first.values[i].layout == second.values[i].layout)) {
      return concat("a tensor ", text_of(first.values[i].layout), " is ", text_of(second.values[i].layout),
                    " in the next step");
    }
  }
  return "";
}

/// Decides if a storage of the second recording is a constant, or why no tape is possible.
struct StorageKind {
  bool constant = false;
  std::string refusal = {};
};

/// Memory that the step allocates and fills outside of LibTorch's operators.
StorageKind classify_made(const Recording& recording, const Storage& a, const Storage& b, bool written) {
  if (!a.content.defined() && !b.content.defined()) {
    return {};
  }
  if (!a.content.defined() || !same_bits(a.content, b.content)) {
    return {.refusal = concat("a tensor that is filled outside of LibTorch's operators, as by torch::tensor(), "
                              "changes from step to step: of ",
                              place_of(recording, at_index(recording.calls, b.source)))};
  }
  if (written) {
    return {.refusal = "a tensor that is filled outside of LibTorch's operators is changed in the same step"};
  }
  return {.constant = true};
}

/// A tensor from outside: the same one in both steps, or recreated with the same content.
StorageKind classify_held(const Recording& first, const Recording& second, std::size_t storage, bool written) {
  const Storage& a = first.storages[storage];
  const Storage& b = second.storages[storage];
  const at::Tensor& before = at_index(first.held, a.source);
  const at::Tensor& now = at_index(second.held, b.source);
  if (before.is_same(now) || (before.is_alias_of(now) && before.const_data_ptr() == now.const_data_ptr())) {
    return {};
  }
  const auto* impl = now.storage().unsafeGetStorageImpl();
  for (std::size_t s = 0; s < first.storages.size(); ++s) {
    if (first.storages[s].origin == Origin::made && first.memory[s]._unsafe_get_target() == impl) {
      return {.refusal = concat("it reads a tensor ", text_of(layout_of(now)), " that the previous step created")};
    }
  }
  if (!a.content.defined() || !same_bits(a.content, b.content)) {
    return {.refusal = now.numel() == 1
                           ? std::string("a number that the step converts to a tensor changes from step to step")
                           : concat("a tensor ", text_of(layout_of(now)),
                                    " that is neither of the batch nor of the model is another one in each step (a "
                                    "batch type of the program must list its members in parts())")};
  }
  if (written) {
    return {.refusal =
                concat("a tensor ", text_of(layout_of(now)), " of the program is made and changed in each step")};
  }
  return {.constant = true};  // its memory may be freed after the step
}

}  // namespace

std::string reconcile(const Recording& first, Recording& second) {
  for (const Recording* recording : {&first, static_cast<const Recording*>(&second)}) {
    if (!recording->refusal.empty()) {
      return recording->refusal;
    }
  }
  if (std::string why = compare_calls(first, second); !why.empty()) {
    return why;
  }
  if (std::string why = check_guards(second); !why.empty()) {
    return why;
  }
  if (std::string why = compare_host_calls(first, second); !why.empty()) {
    return why;
  }
  if (std::string why = compare_values(first, second); !why.empty()) {
    return why;
  }
  const std::vector<bool> written = written_storages(second);
  std::vector<std::size_t> constants;
  for (std::size_t i = 0; i < first.storages.size(); ++i) {
    const Storage& a = first.storages[i];
    const Storage& b = second.storages[i];
    if (a.origin != b.origin || a.source != b.source) {
      return "the step reads another tensor in the next step";
    }
    const StorageKind fate = b.origin == Origin::made   ? classify_made(second, a, b, written[i])
                             : b.origin == Origin::held ? classify_held(first, second, i, written[i])
                                                        : StorageKind();
    if (!fate.refusal.empty()) {
      return fate.refusal;
    }
    if (fate.constant) {
      constants.push_back(i);
    }
  }
  for (const std::size_t i : constants) {
    second.storages[i].origin = Origin::constant;
  }
  return "";
}

}  // namespace danling::inline v0::tape
