// The recording of one step: its operators in order, with their arguments, over the storages that they read and wrote.
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

/// Bytes of a tensor whose content a tape may keep.
inline constexpr std::int64_t max_constant = 64 * 1024;

/// A tensor's place in its storage.
struct Layout {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset = 0;  ///< elements behind the first byte of the storage
  at::ScalarType dtype = at::ScalarType::Undefined;
  bool wrapped_number = false;

  bool operator==(const Layout&) const = default;
  std::int64_t numel() const;
  /// Bytes from its first element to behind its last.
  std::int64_t bytes() const;
};
Layout layout_of(const at::Tensor& tensor);
/// "Float [64, 10]"
std::string text_of(const Layout& layout);

enum class Origin {
  input,     ///< given for each step: a part of its batch
  live,      ///< read from a variable at the beginning of each piece
  gradient,  ///< of a held tensor
  held,      ///< of a tensor that outlives the step: a parameter, a buffer
  constant,  ///< made in each step with the same content
  made,      ///< by a call
};

struct Storage {
  Origin origin = Origin::made;
  int source = -1;       ///< position among the inputs, variables or held tensors; of `made` the call
  bool written = false;  ///< `made`: its content comes from calls
  std::int64_t bytes = 0;
  at::Tensor content = {};  ///< of a small tensor that is not known to outlive the step, when it was read first
};

/// A tensor: a view of a storage.
struct Value {
  int storage = -1;
  Layout layout;
};

/// A tensor, a list of tensors or anything else.
struct Argument {
  enum class Kind { constant, tensor, list };
  Kind kind = Kind::constant;
  std::vector<int> values = {};  ///< of tensors; -1: undefined or none
  c10::IValue constant = {};     ///< of a list: one of its type
};

struct Call {
  c10::OperatorHandle op;
  std::vector<Argument> arguments = {}, results = {};
  std::vector<int> writes = {};  ///< storages
  bool is_view = false;          ///< computes nothing
  bool with_gradients = false;   ///< GradMode, by which some kernels choose
  bool random = false;
  bool guard = false;  ///< a replay goes on only while the result is this one
  bool backward = false;
  int after = -1;  ///< the named tensor that a call read last, for messages
};

/// Between two calls: a function of the program, or gradients that a backward pass has set.
struct HostCall {
  std::size_t place = 0;  ///< number of calls before it
  std::string name;
  std::optional<std::weak_ptr<void>> life = {};  ///< of the object that it changes
  std::vector<int> values = {};
  std::function<void(const Tensors&)> again = {};
  std::vector<std::pair<int, int>> gradients = {};  ///< held tensor, and value or -1
  bool ends_unit = false;                           ///< updates parameters: what is before is compared before it
};

struct Recording {
  std::vector<Storage> storages;
  std::vector<Value> values;
  std::vector<Call> calls;
  std::vector<HostCall> host_calls;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> memory;  ///< of the storages: the addresses stay taken
  std::vector<at::Tensor> held;
  std::vector<Layout> layouts;        ///< of held tensors
  std::vector<bool> wants_gradients;  ///< held tensors
  std::vector<std::string> names;     ///< of held tensors; empty for those that the step found itself
  std::vector<const at::Tensor*> live;
  std::vector<int> outputs;  ///< values that the step returned; -1: undefined
  std::string refusal;       ///< why it cannot be replayed; empty: it can
};

/// Element `index` of a list of a recording.
template <class T>
decltype(auto) at_index(T& list, int index) {
  return list[static_cast<std::size_t>(index)];
}

/// Whether it is a block of memory with sizes and strides.
bool is_strided(const at::Tensor& tensor);

/// Why a tape cannot show the tensor, as "a sparse tensor"; null: it can.
const char* oddity(const at::Tensor& tensor);

/// Of the bytes from its first element to its last.
std::uint64_t content_hash(const at::Tensor& tensor);

/// Whether shape, dtype and every bit agree, but for which nan a nan is; or both are undefined.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// Whether its operators change a tensor of the batch.
bool changes_batch(const Recording& recording);

/// "aten::mm, after fc1.weight was read, in the backward pass": the last parameter or buffer before the call.
std::string place_of(const Recording& recording, const Call& call);

/// Compares the recordings of two steps: why they are not of one kind of step, or nothing. Tensors that `second` made
/// anew with the content of `first` become constants of it.
std::string reconcile(const Recording& first, Recording& second);

}  // namespace danling::inline v0::tape
