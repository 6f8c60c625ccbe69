#include <tensors/nested/call.hpp>

namespace danling::inline v0::detail {

std::string_view Call::name() const {
  const std::string_view full = op_.operator_name().name;
  return full.substr(full.find("::") + 2);
}

bool Call::is_in_place() const {
  const auto& arguments = schema().arguments();
  return !arguments.empty() && arguments[0].alias_info() != nullptr && arguments[0].alias_info()->isWrite();
}

std::optional<std::size_t> Call::find(std::string_view argument) const {
  const auto& arguments = schema().arguments();
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    if (arguments[at].name() == argument) {
      return at;
    }
  }
  return std::nullopt;
}

std::size_t Call::position(std::string_view argument) const {
  const auto found = find(argument);
  check<DataError>(found.has_value(), concat("nested_tensor.", name()), "expected an argument ", argument,
                   ", got an operator without it: ", c10::toString(op_.operator_name()));
  return *found;
}

const at::Tensor& Call::first_nested() {
  for (std::size_t at = 0; at < size(); ++at) {
    const c10::IValue& value = (*this)[at];
    if (value.isTensor() && nested(value.toTensor()) != nullptr) {
      return value.toTensor();
    }
  }
  refuse("expected a NestedTensor outside of a list, got none");
}

std::optional<std::vector<std::int64_t>> Call::integers(std::string_view argument) {
  const c10::IValue& value = (*this)[argument];
  if (value.isNone()) {
    return std::nullopt;
  }
  if (value.isInt()) {
    return std::vector<std::int64_t>{value.toInt()};
  }
  if (value.isIntList()) {
    return value.toIntVector();
  }
  std::vector<std::int64_t> out;  // converts symbolic sizes, which are concrete numbers in C++
  for (const c10::IValue& item : value.toListRef()) {
    out.push_back(item.isInt() ? item.toInt() : item.toSymInt().expect_int());
  }
  return out;
}

void Call::run_composite() {
  // A composite operator has the same kernel on all devices.
  op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
}

void Call::finish(std::vector<c10::IValue> results) {
  stack_.resize(first_);
  for (c10::IValue& result : results) {
    stack_.push_back(std::move(result));
  }
}

}  // namespace danling::inline v0::detail
