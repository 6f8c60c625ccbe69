// A call of a LibTorch operator with a nested tensor among its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <danling/core/error.hpp>
#include <danling/core/format.hpp>

#include <tensors/nested/impl.hpp>

namespace danling::inline v0::detail {

/// Access to the arguments by position or name, until `run` or `finish` replaces them with results.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), first_(stack.size() - op.schema().arguments().size()) {}

  const c10::OperatorHandle& op() const { return op_; }
  const c10::FunctionSchema& schema() const { return op_.schema(); }
  /// The operator's name without overload: "sum" for aten::sum.dim_IntList.
  std::string_view name() const;
  std::size_t size() const { return schema().arguments().size(); }
  c10::IValue& operator[](std::size_t position) { return stack_[first_ + position]; }
  /// @throws DataError when the operator has no such argument
  c10::IValue& operator[](std::string_view argument) { return (*this)[position(argument)]; }
  bool has(std::string_view argument) const { return find(argument).has_value(); }
  /// Returns true if the operator changes its first argument.
  bool is_in_place() const;

  const at::Tensor& tensor(std::string_view argument) { return (*this)[argument].toTensor(); }
  /// Returns the first nested tensor among the arguments, including lists.
  const at::Tensor& first_nested();
  std::vector<at::Tensor> tensors(std::string_view argument) { return (*this)[argument].toTensorVector(); }
  std::int64_t integer(std::string_view argument) { return (*this)[argument].toInt(); }
  bool boolean(std::string_view argument) { return (*this)[argument].toBool(); }
  /// Reads an int, int[] or an optional of these; nullopt for None.
  std::optional<std::vector<std::int64_t>> integers(std::string_view argument);

  /// Calls the operator with the current arguments and replaces them with its results.
  void run() { op_.callBoxed(stack_); }
  /// Calls the composite kernel of LibTorch, whose inner operators receive the nested tensors.
  void run_composite();
  /// Calls the operator with other arguments; the call's arguments are unchanged.
  std::vector<c10::IValue> run_with(std::vector<c10::IValue> arguments) const {
    op_.callBoxed(arguments);
    return arguments;
  }
  std::size_t num_results() const { return schema().returns().size(); }
  c10::IValue& result(std::size_t position) { return stack_[first_ + position]; }
  /// Sets the results without calling the operator.
  void finish(std::vector<c10::IValue> results);
  void finish(at::Tensor result) { finish(std::vector<c10::IValue>{std::move(result)}); }

  /// @throws DataError "[nested_tensor.sum] ..."
  template <class... Parts>
  void expect(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]] {
      refuse(parts...);
    }
  }
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) {
    fail<DataError>(concat("nested_tensor.", name()), parts...);
  }

 private:
  std::optional<std::size_t> find(std::string_view argument) const;
  std::size_t position(std::string_view argument) const;

  const c10::OperatorHandle& op_;
  torch::jit::Stack& stack_;
  std::size_t first_;
};

}  // namespace danling::inline v0::detail
