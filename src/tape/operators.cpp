#include <tape/operators.hpp>

#include <algorithm>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>

namespace danling::inline v0::tape {
namespace {

std::optional<c10::OperatorHandle> find(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchema({name, overload});
}

bool is_result(const c10::Argument& argument) {
  return argument.kwarg_only() && argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

/// True if `out` has the arguments of `op` plus one per result.
bool fits(const c10::FunctionSchema& op, const c10::FunctionSchema& out) {
  const std::size_t count = op.arguments().size();
  if (out.arguments().size() != count + op.returns().size()) {
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (out.arguments()[i].name() != op.arguments()[i].name() ||
        *out.arguments()[i].type() != *op.arguments()[i].type() || is_result(out.arguments()[i])) {
      return false;
    }
  }
  return std::all_of(out.arguments().begin() + static_cast<std::ptrdiff_t>(count), out.arguments().end(), is_result);
}

std::string_view base_name(const Call& call) { return call.op.schema().name(); }

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Argument number(double value) {
  Argument out;
  out.constant = c10::IValue(value);
  return out;
}

/// Converts a number to a tensor as LibTorch's Scalar overloads do.
Argument wrapped(const c10::IValue& value) {
  const c10::NoGradGuard no_grad;
  const c10::Scalar scalar = value.toScalar();
  const auto dtype = scalar.isFloatingPoint() ? at::kDouble
                     : scalar.isBoolean()     ? at::kBool
                     : scalar.isComplex()     ? at::kComplexDouble
                                              : at::kLong;
  at::Tensor tensor = at::scalar_tensor(scalar, at::TensorOptions().dtype(dtype));
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  Argument out;
  out.constant = c10::IValue(std::move(tensor));
  return out;
}

std::optional<OutForm> form(const char* name, const char* overload, std::vector<Argument> arguments,
                            bool results_last) {
  const auto op = find(name, overload);
  return op ? std::optional(OutForm{*op, std::move(arguments), results_last}) : std::nullopt;
}

/// Handles operators whose kernel only calls another one, and operators that copy.
std::optional<OutForm> rewritten(const Call& call) {
  const std::string_view name = base_name(call);
  const std::string& overload = call.op.schema().overload_name();
  if (name == "aten::relu") {
    return form("aten::clamp_min", "out", {call.arguments[0], number(0)}, /*results_last=*/true);
  }
  if (is_one_of(name, {"aten::mul", "aten::div", "aten::add", "aten::sub"}) && overload == "Scalar") {
    std::vector<Argument> arguments = call.arguments;  // the third argument is alpha
    arguments[1] = wrapped(call.arguments[1].constant);
    return form(std::string(name).c_str(), "out", std::move(arguments), /*results_last=*/true);
  }
  if (is_one_of(name, {"aten::clone", "aten::_to_copy"})) {
    Argument non_blocking;
    non_blocking.constant = false;
    return form("aten::copy_", "", {call.arguments[0], non_blocking}, /*results_last=*/false);
  }
  if (name.starts_with("aten::zeros") || name == "aten::new_zeros") {
    return form("aten::zero_", "", {}, /*results_last=*/false);
  }
  if (name.starts_with("aten::ones") || name == "aten::new_ones") {
    return form("aten::fill_", "Scalar", {number(1)}, /*results_last=*/false);
  }
  return std::nullopt;
}

/// True for operators whose out variant uses the given memory for intermediate results, as losses do before reduction.
bool resizes_given_memory(const Call& call) {
  return is_one_of(base_name(call),
                   {"aten::mse_loss", "aten::smooth_l1_loss", "aten::huber_loss", "aten::binary_cross_entropy"});
}

}  // namespace

std::optional<OutForm> out_form(const Call& call) {
  if (auto form = rewritten(call)) {
    return form;
  }
  if (!call.op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || resizes_given_memory(call)) {
    return std::nullopt;
  }
  const auto& schema = call.op.schema();
  const std::string own = schema.overload_name() + "_out";
  for (const char* overload : {"out", own.c_str(), "IntList_out", "grad_input", "output"}) {
    const auto op = find(schema.name().c_str(), overload);
    if (op && op->hasKernelForDispatchKey(c10::DispatchKey::CPU) && fits(schema, op->schema())) {
      return OutForm{*op, call.arguments};
    }
  }
  return std::nullopt;
}

bool makes_constant(const Call& call) {
  const bool reads_tensors = call.op.schema().overload_name().find("Tensor") != std::string::npos;  // of linspace
  return !reads_tensors &&
         is_one_of(base_name(call),
                   {"aten::ones", "aten::zeros", "aten::full", "aten::ones_like", "aten::zeros_like", "aten::full_like",
                    "aten::new_ones", "aten::new_zeros", "aten::new_full", "aten::scalar_tensor", "aten::arange",
                    "aten::eye", "aten::linspace", "aten::tril_indices", "aten::triu_indices"});
}

bool is_elementwise(const Call& call) {
  return is_one_of(base_name(call), {"aten::add",
                                     "aten::sub",
                                     "aten::mul",
                                     "aten::div",
                                     "aten::relu",
                                     "aten::clamp_min",
                                     "aten::neg",
                                     "aten::threshold_backward",
                                     "aten::tanh",
                                     "aten::tanh_backward",
                                     "aten::sigmoid",
                                     "aten::sigmoid_backward",
                                     "aten::gelu",
                                     "aten::gelu_backward",
                                     "aten::silu",
                                     "aten::silu_backward",
                                     "aten::exp",
                                     "aten::log",
                                     "aten::sqrt",
                                     "aten::rsqrt",
                                     "aten::leaky_relu_backward"});
}

}  // namespace danling::inline v0::tape
