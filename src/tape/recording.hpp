// The recording of one step: its operators in order, their arguments, and the storages that they read and write.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/intrusive_ptr.h>

#include <danling/tape/observer.hpp>

namespace danling::inline v0::tape {

/// Maximum size in bytes of a tensor whose content a tape may save.
inline constexpr std::int64_t max_constant = std::int64_t{64} * 1024;

/// A tensor's place in its storage.
struct Layout {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;  ///< in elements, from the start of the storage
  at::ScalarType dtype = at::ScalarType::Undefined;
  bool wrapped_number = false;

  bool operator==(const Layout&) const = default;
  std::int64_t numel() const;
  /// Bytes from the first to the end of the last element.
  std::int64_t bytes() const;
};
Layout layout_of(const at::Tensor& tensor);
/// "Float [64, 10]"
std::string text_of(const Layout& layout);

enum class Origin {
  input,     ///< changes in each step: a part of the batch
  live,      ///< read from a variable at the beginning of each piece
  gradient,  ///< gradient of a held tensor
  held,      ///< a tensor that outlives the step: a parameter, a buffer
  constant,  ///< created in each step with the same content
  made,      ///< result of a call
};

struct Storage {
  Origin origin = Origin::made;
  int source = -1;       ///< index among the inputs, variables or held tensors; for `made` the call
  bool written = false;  ///< for `made`: its content comes from calls
  std::int64_t bytes = 0;
  at::Tensor content = {};  ///< content at the first read, of a small tensor that may not outlive the step
};

/// A tensor as a view of a storage.
struct Value {
  int storage = -1;
  Layout layout;
};

/// A tensor, a list of tensors or anything else.
struct Argument {
  enum class Kind { constant, tensor, list };
  Kind kind = Kind::constant;
  std::vector<int> values = {};  ///< indices of tensors; -1: undefined or none
  c10::IValue constant = {};     ///< for a list: an empty list of its type
};

struct Call {
  c10::OperatorHandle op;
  std::vector<Argument> arguments = {}, results = {};
  std::vector<int> writes = {};  ///< indices of storages
  bool is_view = false;          ///< computes nothing
  bool with_gradients = false;   ///< GradMode, which some kernels depend on
  bool random = false;
  bool guard = false;  ///< a replay ends early if the result differs
  bool backward = false;
  int after = -1;  ///< the named tensor that a call read last, for messages
};

/// An event between two calls: a function of the program, or gradients set by a backward pass.
struct HostCall {
  std::size_t place = 0;  ///< number of calls before it
  std::string name;
  std::optional<std::weak_ptr<void>> lifetime = {};  ///< of the object that the function changes
  std::vector<int> values = {};
  std::function<void(const Tensors&)> again = {};
  std::vector<std::pair<int, int>> gradients = {};  ///< held tensor, and value or -1
  bool ends_unit = false;                           ///< updates parameters: the checker compares the preceding calls
                                                    ///< before it
};

struct Recording {
  std::vector<Storage> storages;
  std::vector<Value> values;
  std::vector<Call> calls;
  std::vector<HostCall> host_calls;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;  ///< weak pointers to the storages, so that their
                                                                  ///< addresses are not reused
  std::vector<at::Tensor> held;
  std::vector<Layout> layouts;        ///< layouts of held tensors
  std::vector<bool> wants_gradients;  ///< per held tensor
  std::vector<std::string> names;     ///< of held tensors; empty for tensors without a name
  std::vector<const at::Tensor*> live;
  std::vector<int> outputs;  ///< values that the step returned; -1: undefined
  std::string refusal;       ///< why the step cannot be replayed; empty if it can
};

/// Element `index` of a list of a recording.
template <class T>
decltype(auto) at_index(T& list, int index) {
  return list[static_cast<std::size_t>(index)];
}

/// Returns true if the tensor is a block of memory with sizes and strides.
bool is_strided(const at::Tensor& tensor);

/// Returns why a tape cannot represent the tensor, such as "a sparse tensor"; null if it can.
const char* unsupported_reason(const at::Tensor& tensor);

/// Hashes the bytes from the first to the last element.
std::uint64_t content_hash(const at::Tensor& tensor);

/// Returns true if shape, dtype and all bits are equal, or both are undefined; any nan equals any nan.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// Returns true if operators of the recording change a tensor of the batch.
bool changes_batch(const Recording& recording);

/// "aten::mm, after fc1.weight was read, in the backward pass": names the last parameter or buffer read before the
/// call.
std::string place_of(const Recording& recording, const Call& call);

/// Compares the recordings of two steps; returns why they differ in kind, or an empty string. Tensors that `second`
/// recreates with the same content become constants in it.
std::string reconcile(const Recording& first, Recording& second);

}  // namespace danling::inline v0::tape
