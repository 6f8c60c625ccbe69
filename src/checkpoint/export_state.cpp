// Converts models to another floating-point dtype, for publishing.
#include <map>
#include <utility>
#include <vector>

#include <danling/checkpoint/file_manager.hpp>

#include <checkpoint/export_dtype.hpp>
#include <checkpoint/identity.hpp>

namespace danling::inline v0 {
namespace {

State cast(const State& state, c10::ScalarType dtype, std::map<TensorIdentity, at::Tensor>& done) {
  if (state.is_tensor() && state.tensor().defined() && state.tensor().is_floating_point()) {
    const at::Tensor tensor = state.tensor().detach();
    const TensorIdentity identity = identity_of(tensor);
    const auto [found, added] = done.try_emplace(identity);
    if (added) {
      found->second = tensor.to(dtype);
    }
    return found->second;
  }
  if (state.is_map()) {
    State::Map out;
    for (const auto& entry : state.map()) {
      out.set(entry.key, cast(entry.value, dtype, done));
    }
    return out;
  }
  if (state.is_list() || state.is_tuple()) {
    State::List out;
    for (const auto& item : state.items()) {
      out.push_back(cast(item, dtype, done));
    }
    return state.is_list() ? State(std::move(out)) : State(State::Tuple{std::move(out)});
  }
  return state;
}

}  // namespace

c10::ScalarType resolve_export_dtype(const std::string& name) {
  std::string lowered;
  for (const char c : name) {
    lowered.push_back(c == '-' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  const auto first = lowered.find_first_not_of(" \t");
  const auto last = lowered.find_last_not_of(" \t");
  lowered = first == std::string::npos ? std::string() : lowered.substr(first, last - first + 1);
  static const std::map<std::string, c10::ScalarType> known = {
      {"bf16", c10::ScalarType::BFloat16},  {"bfloat16", c10::ScalarType::BFloat16},
      {"double", c10::ScalarType::Double},  {"float", c10::ScalarType::Float},
      {"float16", c10::ScalarType::Half},   {"float32", c10::ScalarType::Float},
      {"float64", c10::ScalarType::Double}, {"fp16", c10::ScalarType::Half},
      {"fp32", c10::ScalarType::Float},     {"fp64", c10::ScalarType::Double},
      {"half", c10::ScalarType::Half},
  };
  const auto found = known.find(lowered);
  if (found == known.end()) {
    std::vector<std::string> names;
    for (const auto& entry : known) {
      names.push_back(entry.first);
    }
    fail<ConfigError>("checkpoint.export_dtype", "expected one of ", join(names), ", got ", quote(name));
  }
  return found->second;
}

State export_state(const State& state, const std::string& dtype) {
  std::map<TensorIdentity, at::Tensor> done;
  return cast(state, resolve_export_dtype(dtype), done);
}

}  // namespace danling::inline v0
